{{- define "rollbox.preflightRules" -}}
- {apiGroups: [""], resources: [pods], verbs: [create, get, delete]}
- {apiGroups: [""], resources: [events], verbs: [list]}
{{- end }}

{{- define "rollbox.probePod" -}}
{{- $top := index . 0 }}
apiVersion: v1
kind: Pod
metadata:
  name: {{ $top.Release.Name }}-preflight-probe
  namespace: {{ $top.Release.Namespace }}
  labels: {{- include "rollbox.labels" (list $top "preflight-probe") | nindent 4 }}
spec:
  runtimeClassName: {{ index . 1 }}
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 0
  {{- with $top.Values.images.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $top.Values.sandboxes.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $top.Values.sandboxes.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: probe
      image: {{ include "rollbox.image" (list $top "controlplane") }}
      imagePullPolicy: {{ $top.Values.images.pullPolicy }}
      # The hook sets the command, with the destinations to try.
      env:
        - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
      resources:
        requests: {cpu: 10m, memory: 32Mi}
        limits: {cpu: 500m, memory: 128Mi}
      {{- include "rollbox.containerSecurity" $top | nindent 6 }}
{{- end }}
