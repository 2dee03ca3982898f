{{- /* What all platform pods have in common. Argument: (list . "gateway"). */}}
{{- define "rollbox.podDefaults" -}}
{{- $top := index . 0 }}
{{- with $top.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- /* Not for hooks: they run before the release's PriorityClass is created, or after it is deleted. */}}
{{- if and $top.Values.priorityClasses.create (not (has (index . 1) (list "preflight" "teardown"))) }}
priorityClassName: {{ $top.Release.Name }}-platform
{{- end }}
{{- with $top.Values.platform.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "rollbox.tolerations" (list $top $top.Values.platform.tolerations) }}
{{- if $top.Values.platform.userNamespaces }}
{{- /* An API server that does not know the field leaves it out, and says nothing. */}}
{{- if semverCompare "<1.33-0" $top.Capabilities.KubeVersion.Version }}{{ fail (printf "platform.userNamespaces needs Kubernetes 1.33, and this is %s" $top.Capabilities.KubeVersion.Version) }}{{ end }}
hostUsers: false
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "rollbox.spread" -}}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "rollbox.selector" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{- define "rollbox.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "rollbox.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "rollbox.name" . }}
  labels: {{- include "rollbox.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready may always be evicted, since it serves no calls.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "rollbox.selector" . | nindent 6 }}
{{- end }}
