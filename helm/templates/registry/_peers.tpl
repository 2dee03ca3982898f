{{- /* Not empty where nodes give one another layers: `--reuse-values` of an older release has no such values. */}}
{{- define "rollbox.peers" -}}
{{- if and (include "rollbox.registry" .) (dig "peers" "enabled" false .Values.registry) }}
{{- if not (include "rollbox.ownRegistry" .) }}{{ fail "registry.peers.enabled needs the chart's own registry: nodes are told of it in the same file, which is not written for registry.external" }}{{ end }}
{{- true }}
{{- end }}
{{- end }}

{{- /* The name in the certificate that all nodes have. */}}
{{- define "rollbox.peersName" -}}
peers.{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- /* Generated once and kept, as `rollbox.generated`, and all at once: nobody keeps the authority's key. */}}
{{- define "rollbox.peersSecrets" -}}
{{- if not (hasKey .Values "generatedPeers") }}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (include "rollbox.name" (list . "peers"))).data | default dict }}
{{- $found := dict }}
{{- if and (get $kept "tls.key") (get $kept "token") }}
{{- range $name, $key := dict "authority" "ca.crt" "certificate" "tls.crt" "key" "tls.key" "token" "token" }}
{{- $_ := set $found $name (get $kept $key | b64dec) }}
{{- end }}
{{- else }}
{{- $name := include "rollbox.peersName" . }}
{{- $authority := genCAWithKey (printf "rollbox peers of %s" .Release.Name) 3650 (genPrivateKey "ecdsa") }}
{{- $signed := genSignedCertWithKey $name nil (list $name) 3650 $authority (genPrivateKey "ecdsa") }}
{{- $found = dict "authority" $authority.Cert "certificate" $signed.Cert "key" $signed.Key "token" (randAlphaNum 40) }}
{{- end }}
{{- $_ := set .Values "generatedPeers" $found }}
{{- end }}
{{- toYaml .Values.generatedPeers }}
{{- end }}

{{- /* How a node finds the registry's layers at other nodes first: containerd's certs.d, in the place of the other file. */}}
{{- define "rollbox.peersHosts" -}}
{{- $local := printf "http://127.0.0.1:%v" .Values.registry.peers.localPort -}}
{{- $lines := include "rollbox.registryHosts" . | splitList "\n" -}}
{{ first $lines }}

[host."{{ $local }}"]
  capabilities = ["pull"]
  [host."{{ $local }}".header]
    X-Rollbox-Peers = ["{{ (include "rollbox.peersSecrets" . | fromYaml).token }}"]
{{ rest $lines | join "\n" }}
{{- end }}
