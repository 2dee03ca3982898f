{{- /* The endpoints of webhooks; the values are absent in an upgrade with --reuse-values from a chart without them. */}}
{{- define "rollbox.webhooks" -}}
{{- dig "webhooks" list (.Values.controlplane.events | default dict) | toJson }}
{{- end }}

{{- define "rollbox.webhooksEnv" -}}
{{- $made := list }}
{{- range include "rollbox.webhooks" . | fromJsonArray }}
{{- $one := dict "name" .name "url" .url "secret_file" (printf "/etc/rollbox/webhooks/%s" .name) "owners" (.owners | default list) "types" (.types | default list) "batch" (int64 (.batch | default 1)) "give_up_seconds" (int64 (.giveUpSeconds | default 3600)) "allow_private" (.allowPrivate | default false) }}
{{- $made = append $made $one }}
{{- end }}
{{- with $made }}
- {name: ROLLBOX_CONTROLPLANE_WEBHOOKS, value: {{ toJson . | quote }}}
{{- end }}
{{- end }}

{{- define "rollbox.webhooksMounts" -}}
{{- with include "rollbox.webhooks" . | fromJsonArray }}
- {name: webhooks, mountPath: /etc/rollbox/webhooks, readOnly: true}
{{- end }}
{{- end }}

{{- define "rollbox.webhooksVolumes" -}}
{{- with include "rollbox.webhooks" . | fromJsonArray }}
- name: webhooks
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret: {name: {{ .secretName }}, items: [{key: secret, path: {{ .name }}}]}
      {{- end }}
{{- end }}
{{- end }}
