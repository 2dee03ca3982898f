{{- /*
Secrets that are generated once and kept: existing values in the cluster take precedence over new ones. They are stored
in .Values, since every evaluation would generate other values; so the checksums in the pods match the Secrets.
*/}}
{{- define "rollbox.generated" -}}
{{- if not (hasKey .Values "generated") }}
{{- $found := dict }}
{{- range $name := list "api-keys" "signing-key" "settings-key" "feed-key" "packages-key" "bridges-key" "redis" }}
{{- $_ := set $found $name ((lookup "v1" "Secret" $.Release.Namespace (printf "%s-%s" $.Release.Name $name)).data | default dict) }}
{{- end }}
{{- $keys := get (get $found "api-keys") "keys" | b64dec }}
{{- if .Values.apiKeys }}
{{- $lines := list }}
{{- range $owner, $key := .Values.apiKeys }}{{ $lines = append $lines (printf "%s:%s" $owner $key) }}{{ end }}
{{- $keys = join "\n" $lines }}
{{- else if not $keys }}
{{- $keys = printf "default:%s" (randAlphaNum 40) }}
{{- end }}
{{- $private := get (get $found "signing-key") "tls.key" | b64dec }}
{{- $certificate := get (get $found "signing-key") "tls.crt" | b64dec }}
{{- if not (and $private $certificate) }}
{{- $private = genPrivateKey "ed25519" }}
{{- $certificate = (genSelfSignedCertWithKey "rollbox" nil nil 36500 $private).Cert }}
{{- end }}
{{- $settings := get (get $found "settings-key") "key" | b64dec | default (randAlphaNum 64) }}
{{- $feed := get (get $found "feed-key") "key" | b64dec | default (randAlphaNum 64) }}
{{- $packages := get (get $found "packages-key") "key" | b64dec | default (randAlphaNum 64) }}
{{- $bridges := get (get $found "bridges-key") "key" | b64dec | default (randAlphaNum 64) }}
{{- $password := get (get $found "redis") "password" | b64dec | default (randAlphaNum 40) }}
{{- $_ := set .Values "generated" (dict "keys" $keys "private" $private "certificate" $certificate "settings" $settings "feed" $feed "packages" $packages "bridges" $bridges "password" $password) }}
{{- end }}
{{- toYaml .Values.generated }}
{{- end }}
