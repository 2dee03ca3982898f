{{- /* Not empty where there are node agents: `--reuse-values` of a release from before them has no such values. */}}
{{- define "rollbox.nodeAgents" -}}
{{- if dig "enabled" false (.Values.nodeAgent | default dict) }}true{{ end }}
{{- end }}

{{- /* Not empty where agents make images of sandboxes. */}}
{{- define "rollbox.commits" -}}
{{- if and (include "rollbox.nodeAgents" .) (include "rollbox.registry" .) (dig "runsc" "root" "" .Values.nodeAgent) }}true{{ end }}
{{- end }}

{{- /* Not empty where images are built from Dockerfiles: `--reuse-values` of an older release has no such values. */}}
{{- define "rollbox.builds" -}}
{{- if dig "enabled" false (.Values.builds | default dict) }}
{{- if not (include "rollbox.commits" .) }}{{ fail "builds.enabled needs nodeAgent.enabled and registry.enabled: what is built is kept where images of sandboxes are" }}{{ end }}
{{- true }}
{{- end }}
{{- end }}

{{- /* The runtime handlers of sandboxes, that of most of them first. */}}
{{- define "rollbox.nodeHandlers" -}}
{{- $handlers := list .Values.runtimeClass.handler }}
{{- if include "rollbox.lazyPulling" . }}
{{- $handlers = append $handlers .Values.lazyPulling.handler }}
{{- end }}
{{- join "," (uniq $handlers) }}
{{- end }}

{{- /* The names in the certificates of the node agents and of their only client. */}}
{{- define "rollbox.nodeServer" -}}
node.{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- define "rollbox.nodeClient" -}}
control-plane.{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- /*
Generated once and kept, as `rollbox.generated`, and all at once: nobody keeps the authority's key, so nothing can be
signed later.
*/}}
{{- define "rollbox.nodeCertificates" -}}
{{- if not (hasKey .Values "generatedNode") }}
{{- $name := include "rollbox.name" (list . "node") }}
{{- $server := (lookup "v1" "Secret" .Release.Namespace (printf "%s-server" $name)).data | default dict }}
{{- $client := (lookup "v1" "Secret" .Release.Namespace (printf "%s-client" $name)).data | default dict }}
{{- $found := dict }}
{{- if and (get $server "tls.key") (get $client "tls.key") (eq (get $server "ca.crt") (get $client "ca.crt")) }}
{{- $_ := set $found "authority" (get $server "ca.crt" | b64dec) }}
{{- $_ := set $found "server" (dict "certificate" (get $server "tls.crt" | b64dec) "key" (get $server "tls.key" | b64dec)) }}
{{- $_ := set $found "client" (dict "certificate" (get $client "tls.crt" | b64dec) "key" (get $client "tls.key" | b64dec)) }}
{{- else }}
{{- $days := 3650 }}
{{- $authority := genCAWithKey (printf "rollbox node agents of %s" .Release.Name) $days (genPrivateKey "ecdsa") }}
{{- $_ := set $found "authority" $authority.Cert }}
{{- range $side, $for := dict "server" (include "rollbox.nodeServer" .) "client" (include "rollbox.nodeClient" .) }}
{{- $signed := genSignedCertWithKey $for nil (list $for) $days $authority (genPrivateKey "ecdsa") }}
{{- $_ := set $found $side (dict "certificate" $signed.Cert "key" $signed.Key) }}
{{- end }}
{{- end }}
{{- $_ := set .Values "generatedNode" $found }}
{{- end }}
{{- toYaml .Values.generatedNode }}
{{- end }}

{{- /* Not empty where there is an installer. It needs agents: they tell whether a node is proven. */}}
{{- define "rollbox.nodeInstaller" -}}
{{- $installer := dig "installer" dict (.Values.nodeAgent | default dict) }}
{{- if $installer.enabled }}
{{- if not (include "rollbox.nodeAgents" .) }}{{ fail "nodeAgent.installer.enabled needs nodeAgent.enabled: agents tell whether their nodes are proven" }}{{ end }}
{{- $installer.mode }}
{{- end }}
{{- end }}

{{- /* Platform pods and those of the nodes may run on nodes that are not proven for sandboxes. */}}
{{- define "rollbox.tolerations" -}}
{{- $all := index . 1 }}
{{- if include "rollbox.nodeInstaller" (index . 0) }}
{{- $all = append $all (dict "key" "rollbox.dev/unproven" "operator" "Exists") }}
{{- end }}
{{- with $all }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The nodes that have agents, and an installer. */}}
{{- define "rollbox.nodeSelector" -}}
{{- merge (dict) .Values.runtimeClass.nodeSelector .Values.sandboxes.nodeSelector | toJson }}
{{- end }}

{{- /* Where the two processes of the snapshotter listen on nodes; the installer puts them where they are by default. */}}
{{- define "rollbox.snapshotterRun" -}}
{{- if include "rollbox.nodeInstaller" . }}/run/rollbox-snapshotter{{ else }}{{ .Values.lazyPulling.folder }}{{ end }}
{{- end }}
