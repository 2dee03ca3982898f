{{- /* Not empty where there is a private registry: `--reuse-values` of a release from before it has no such values. */}}
{{- define "rollbox.registry" -}}
{{- if dig "enabled" false (.Values.registry | default dict) }}true{{ end }}
{{- end }}

{{- /* Not empty where the chart runs it. */}}
{{- define "rollbox.ownRegistry" -}}
{{- if and (include "rollbox.registry" .) (not (dig "external" "host" "" .Values.registry)) }}true{{ end }}
{{- end }}

{{- /*
Not empty where the control plane asks the registry's API: for what was made of sandboxes, and for recorded copies where no
collector sees the registry's files.
*/}}
{{- define "rollbox.registryAsked" -}}
{{- if or (include "rollbox.commits" .) (and (include "rollbox.registry" .) (not (include "rollbox.ownRegistry" .))) }}true{{ end }}
{{- end }}

{{- define "rollbox.registryService" -}}
{{- printf "%s.%s.svc.%s" (include "rollbox.name" (list . "registry")) .Release.Namespace .Values.clusterDomain }}
{{- end }}

{{- /* As names of images begin with it, and as nodes know it. */}}
{{- define "rollbox.registryHost" -}}
{{- with .Values.registry.external.host }}{{ . }}{{ else }}{{ include "rollbox.registryService" . }}:{{ .Values.registry.port }}{{ end }}
{{- end }}

{{- /* Where images are pushed. */}}
{{- define "rollbox.registryPush" -}}
{{- with .Values.registry.external.host }}{{ . }}{{ else }}{{ include "rollbox.registryService" . }}:{{ .Values.registry.pushPort }}{{ end }}
{{- end }}

{{- /* Where agents put images of sandboxes, with tokens: the mirror stands before a registry that knows none of them. */}}
{{- define "rollbox.registryCommits" -}}
{{- if include "rollbox.ownRegistry" . }}{{ include "rollbox.registryService" . }}{{ else }}{{ include "rollbox.mirrorService" . }}{{ end }}:{{ .Values.registry.commitPort | default 5445 }}
{{- end }}

{{- /* Where the collector is asked, by the name that is in the registry's certificate. */}}
{{- define "rollbox.registryCollector" -}}
{{- include "rollbox.registryService" . }}:{{ .Values.registry.collectorPort | default 5446 }}
{{- end }}

{{- /* A quantity of Kubernetes in bytes. */}}
{{- define "rollbox.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[A-Za-z]*$" .)) | int64 }}
{{- end }}

{{- define "rollbox.registryAccount" -}}
{{- if include "rollbox.ownRegistry" . }}{{ include "rollbox.name" (list . "registry") }}-push{{ else }}{{ .Values.registry.external.existingSecret }}{{ end }}
{{- end }}

{{- /* The names of the two ends of calls to the mirror, in their certificates. */}}
{{- define "rollbox.mirrorServer" -}}
mirror.{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- define "rollbox.mirrorService" -}}
{{- printf "%s.%s.svc.%s" (include "rollbox.name" (list . "mirror")) .Release.Namespace .Values.clusterDomain }}
{{- end }}

{{- define "rollbox.mirrorClient" -}}
control-plane.{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- /*
Accounts and certificates, generated once and kept, as `rollbox.generated`. The authority's key is kept too, in a Secret
that no pod has: nodes trust the authority, and the registry's certificate is signed again when its names change.
*/}}
{{- define "rollbox.registrySecrets" -}}
{{- if not (hasKey .Values "generatedRegistry") }}
{{- $name := include "rollbox.name" (list . "registry") }}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (printf "%s-authority" $name)).data | default dict }}
{{- $found := dict }}
{{- range $key := list "push" "pull" "http" }}
{{- $_ := set $found $key (get $kept $key | b64dec | default (randAlphaNum 40)) }}
{{- end }}
{{- $authority := dict }}
{{- if and (get $kept "tls.crt") (get $kept "tls.key") }}
{{- $authority = buildCustomCert (get $kept "tls.crt") (get $kept "tls.key") }}
{{- else }}
{{- $authority = genCAWithKey (printf "rollbox registry of %s" .Release.Name) 3650 (genPrivateKey "ecdsa") }}
{{- end }}
{{- $_ := set $found "authority" (dict "certificate" $authority.Cert "key" $authority.Key) }}
{{- $addresses := list }}{{ $names := list (include "rollbox.registryService" .) (printf "%s.%s.svc" $name .Release.Namespace) }}
{{- range .Values.registry.addresses }}
{{- if regexMatch "^[0-9.]+$|:" . }}{{ $addresses = append $addresses . }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- $wanted := dict "registry" (dict "addresses" $addresses "names" $names) }}
{{- /* Agents come to the mirror before an external registry, by the name of its Service. */}}
{{- $server := list (include "rollbox.mirrorServer" .) }}
{{- if not (include "rollbox.ownRegistry" .) }}{{ $server = append $server (include "rollbox.mirrorService" .) }}{{ end }}
{{- $_ := set $wanted "server" (dict "addresses" list "names" $server) }}
{{- $_ := set $wanted "client" (dict "addresses" list "names" (list (include "rollbox.mirrorClient" .))) }}
{{- range $side, $for := $wanted }}
{{- $stamp := printf "%s %s" (join "," $for.names) (join "," $for.addresses) | sha256sum }}
{{- if and (eq (get $kept (printf "%s.names" $side) | b64dec) $stamp) (get $kept "tls.key") }}
{{- $_ := set $found $side (dict "certificate" (get $kept (printf "%s.crt" $side) | b64dec) "key" (get $kept (printf "%s.key" $side) | b64dec) "stamp" $stamp) }}
{{- else }}
{{- $signed := genSignedCertWithKey (first $for.names) $for.addresses $for.names 3650 $authority (genPrivateKey "ecdsa") }}
{{- $_ := set $found $side (dict "certificate" $signed.Cert "key" $signed.Key "stamp" $stamp) }}
{{- end }}
{{- end }}
{{- /* What says who may make which image of a sandbox: a key of its own, since the authority signs for others too. */}}
{{- if and (get $kept "commits.crt") (get $kept "commits.key") }}
{{- $_ := set $found "commits" (dict "certificate" (get $kept "commits.crt" | b64dec) "key" (get $kept "commits.key" | b64dec)) }}
{{- else }}
{{- $signs := genSelfSignedCertWithKey (printf "rollbox commits of %s" .Release.Name) nil nil 3650 (genPrivateKey "ecdsa") }}
{{- $_ := set $found "commits" (dict "certificate" $signs.Cert "key" $signs.Key) }}
{{- end }}
{{- $_ := set .Values "generatedRegistry" $found }}
{{- end }}
{{- toYaml .Values.generatedRegistry }}
{{- end }}

{{- /*
The registry's configuration, without a cache of blobs (`storage.cache`): what the collector moves is gone at once for all
processes. Two of these serve one store: nodes get a port on which nothing can be changed, with an
account of its own, since Distribution's accounts have no rights of their own. A third one takes what is made of
sandboxes: a node's agent gets a token for each, which is good for that one repository. Argument: (list . "read" | "write" |
"commits").
*/}}
{{- define "rollbox.registryConfig" -}}
{{- $top := index . 0 }}{{ $reads := eq (index . 1) "read" }}{{ $commits := eq (index . 1) "commits" }}
{{- $registry := $top.Values.registry -}}
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage:
  filesystem: {rootdirectory: /data}
  delete: {enabled: {{ not $reads }}}
  maintenance:
    readonly: {enabled: {{ $reads }}}
    uploadpurging: {enabled: {{ not $reads }}, age: 6h, interval: 1h, dryrun: false}
auth:
  {{- if $commits }}
  token: {realm: "https://{{ include "rollbox.registryCommits" $top }}/", service: rollbox-commits, issuer: rollbox-controlplane, rootcertbundle: /etc/rollbox/commits.crt}
  {{- else }}
  htpasswd: {realm: rollbox, path: /accounts/{{ $reads | ternary "readers" "htpasswd" }}}
  {{- end }}
http:
  addr: ":{{ $commits | ternary $registry.commitPort ($reads | ternary $registry.port $registry.pushPort) }}"
  secret: {{ (include "rollbox.registrySecrets" $top | fromYaml).http }}
  tls: {certificate: /etc/rollbox/tls.crt, key: /etc/rollbox/tls.key}
health:
  storagedriver: {enabled: true, interval: 10s, threshold: 3}
{{- end }}

{{- /* How a node finds the registry: containerd's certs.d (docs/images.md). */}}
{{- define "rollbox.registryHosts" -}}
{{- $host := include "rollbox.registryHost" . -}}
{{- $name := first .Values.registry.addresses | default (include "rollbox.registryService" .) }}
{{- $address := printf "https://%s:%v" (contains ":" $name | ternary (printf "[%s]" $name) $name) .Values.registry.port -}}
server = "{{ $address }}"

[host."{{ $address }}"]
  capabilities = ["pull", "resolve"]
  ca = "ca.crt"
{{- end }}

{{- /* Whether the registry has a volume; see `rollbox.redisVolume`. */}}
{{- define "rollbox.registryVolume" -}}
{{- $wish := .Values.registry.persistence.enabled | toString }}
{{- $name := include "rollbox.name" (list . "registry") }}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace $name }}
{{- if $there }}
{{- $has := not (empty $there.spec.volumeClaimTemplates) | toString }}
{{- if not (has $wish (list "auto" $has)) }}
{{- fail (printf "registry.persistence.enabled is %s, but the registry of this release was installed with %s, and a StatefulSet's volumes cannot be changed: set it to auto, which keeps what is there, or let the registry begin anew (kubectl -n %s delete statefulset %s, then upgrade): images are copied again, and what was made of sandboxes is lost" $wish $has .Release.Namespace $name) }}
{{- end }}
{{- eq $has "true" | ternary "true" "" }}
{{- else if ne $wish "auto" }}
{{- eq $wish "true" | ternary "true" "" }}
{{- else if .Values.registry.persistence.storageClass }}true
{{- else }}
{{- include "rollbox.defaultStorageClass" . }}
{{- end }}
{{- end }}
