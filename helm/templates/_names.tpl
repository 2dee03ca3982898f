{{- /* Names and labels. For one component the argument is (list . "gateway"). */}}
{{- define "rollbox.name" -}}
{{- printf "%s-%s" (index . 0).Release.Name (index . 1) }}
{{- end }}

{{- define "rollbox.sandboxNamespace" -}}
{{- .Values.sandboxes.namespace | default (printf "%s-sandboxes" .Release.Name) }}
{{- end }}

{{- define "rollbox.image" -}}
{{- $top := index . 0 }}{{- $name := index . 1 }}
{{- $images := $top.Values.images }}
{{- with index $images $name }}{{ . }}{{ else -}}
{{- if not $images.registry }}{{ fail (printf "images.registry is empty: set it, or images.%s, to where `make images` pushed" $name) }}{{ end -}}
{{- printf "%s/%s:%s" (trimSuffix "/" $images.registry) (eq $name "runtime" | ternary "python" $name) ($images.tag | default $top.Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* The Service of gateways for this release's own pods, which speak HTTP; the other one has HTTPS alone where there is TLS. */}}
{{- define "rollbox.gatewayInside" -}}
{{- printf "%s-gateway%s" .Release.Name (.Values.gateway.tlsSecret | empty | ternary "" "-inside") }}
{{- end }}

{{- define "rollbox.selector" -}}
app.kubernetes.io/name: rollbox
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "rollbox.labels" -}}
{{ include "rollbox.selector" . }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end }}

{{- define "rollbox.sandboxSelector" -}}
app.kubernetes.io/name: rollbox-sandbox
rollbox.dev/installation: {{ .Release.Name }}
{{- end }}

{{- /* Whether sandboxes have names in DNS; the value is absent in an upgrade with --reuse-values from a chart without. */}}
{{- define "rollbox.names" -}}
{{- if dig "enabled" true .Values.dns }}true{{ end }}
{{- end }}

{{- define "rollbox.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis" .Release.Name) }}
{{- end }}

{{- define "rollbox.ownRedis" -}}
{{- if not (or .Values.redis.url .Values.redis.existingSecret) }}true{{ end }}
{{- end }}

{{- define "rollbox.signingSecret" -}}
{{- .Values.existingSecrets.signingKey | default (printf "%s-signing-key" .Release.Name) }}
{{- end }}

{{- define "rollbox.settingsSecret" -}}
{{- .Values.existingSecrets.settingsKey | default (printf "%s-settings-key" .Release.Name) }}
{{- end }}

{{- define "rollbox.feedSecret" -}}
{{- .Values.existingSecrets.feedKey | default (printf "%s-feed-key" .Release.Name) }}
{{- end }}

{{- define "rollbox.apiKeysSecret" -}}
{{- .Values.existingSecrets.apiKeys | default (printf "%s-api-keys" .Release.Name) }}
{{- end }}
