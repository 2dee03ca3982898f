{{- /* A hook's Job, ServiceAccount and ConfigMap. Argument: (dict "top" . "name" "preflight"
"on" "pre-install,pre-upgrade" "modules" (list ...) "settings" ... "timeout" ... "env" (dict NAME FIELD)). */}}
{{- define "rollbox.hookMeta" -}}
metadata:
  name: {{ .top.Release.Name }}-{{ .name }}{{ with .suffix }}-{{ . }}{{ end }}
  labels: {{- include "rollbox.labels" (list .top .name) | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .on }}
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
    helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{- define "rollbox.hookJob" -}}
{{- $meta := include "rollbox.hookMeta" (merge (dict "weight" -20) .) }}
apiVersion: v1
kind: ServiceAccount
{{ $meta }}
---
apiVersion: v1
kind: ConfigMap
{{ $meta }}
data:
  {{- range prepend .modules .name }}
  {{ . }}.py: | {{- $.top.Files.Get (printf "files/hooks/%s.py" .) | nindent 4 }}
  {{- end }}
  settings.json: | {{- .settings | toPrettyJson | nindent 4 }}
---
apiVersion: batch/v1
kind: Job
{{ include "rollbox.hookMeta" (merge (dict "weight" -10) .) }}
spec:
  backoffLimit: 0
  activeDeadlineSeconds: {{ add .timeout 60 }}
  template:
    metadata:
      labels: {{- include "rollbox.labels" (list .top .name) | nindent 8 }}
    spec:
      serviceAccountName: {{ .top.Release.Name }}-{{ .name }}
      restartPolicy: Never
      enableServiceLinks: false
      {{- include "rollbox.podDefaults" (list .top .name) | nindent 6 }}
      containers:
        - name: {{ .name }}
          image: {{ include "rollbox.image" (list .top "controlplane") }}
          imagePullPolicy: {{ .top.Values.images.pullPolicy }}
          workingDir: /etc/rollbox
          command: [python3, -m, hooks.{{ .name }}, hooks/settings.json]
          {{- with .env }}
          env: {{- range $name, $field := . }}
            - {name: {{ $name }}, valueFrom: {fieldRef: {fieldPath: {{ $field }}}}}
          {{- end }}
          {{- end }}
          resources:
            requests: {cpu: 50m, memory: 32Mi}
            limits: {cpu: 500m, memory: 128Mi}
          {{- include "rollbox.containerSecurity" . | nindent 10 }}
          volumeMounts:
            - {name: settings, mountPath: /etc/rollbox/hooks, readOnly: true}
      volumes:
        - {name: settings, configMap: {name: {{ .top.Release.Name }}-{{ .name }}}}
{{- end }}

{{- define "rollbox.hookRole" -}}
{{- $meta := include "rollbox.hookMeta" (merge (dict "weight" -20) .) | replace "metadata:" (printf "metadata:\n  namespace: %s" .namespace) }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
{{ $meta }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
{{ $meta }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .top.Release.Name }}-{{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .top.Release.Name }}-{{ .name }}, namespace: {{ .top.Release.Namespace }}}
{{- end }}

{{- define "rollbox.hookClusterRole" -}}
{{- $name := printf "%s-%s-%s" .top.Release.Namespace .top.Release.Name .name }}
{{- $meta := include "rollbox.hookMeta" (merge (dict "weight" -20) .) | replace (printf "name: %s-%s\n" .top.Release.Name .name) (printf "name: %s\n" $name) }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
{{ $meta }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
{{ $meta }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .top.Release.Name }}-{{ .name }}, namespace: {{ .top.Release.Namespace }}}
{{- end }}
