{{- /* Whether the scaler is enabled; the values are absent in an upgrade with --reuse-values from a chart without them. */}}
{{- define "rollbox.scaling" -}}
{{- if dig "enabled" false (.Values.scaling | default dict) }}true{{ end }}
{{- end }}

{{- /* Whether it acts, for which it needs rights. */}}
{{- define "rollbox.scalingActs" -}}
{{- if and (include "rollbox.scaling" .) (not .Values.scaling.dryRun) }}true{{ end }}
{{- end }}

{{- /* The name of what holds room for a node pool. Argument: (list . "pool"). */}}
{{- define "rollbox.placeholder" -}}
{{- printf "%s-placeholder-%s" (index . 0).Release.Name (index . 1) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The declared node pools, as the control plane reads them. */}}
{{- define "rollbox.nodePools" -}}
{{- $pools := list }}
{{- if not .Values.scaling.nodePools }}{{ fail "scaling.nodePools is empty: declare at least one" }}{{ end }}
{{- range .Values.scaling.nodePools }}
{{- $mebi := 1048576 }}
{{- $size := dict "cpu_millicores" (int64 .size.cpuMillicores) "memory_bytes" (mul $mebi (int64 .size.memoryMebibytes)) "disk_bytes" (mul $mebi (int64 .size.diskMebibytes)) "gpu" (int64 (.size.gpu | default 0)) "pods" (int64 .size.pods) }}
{{- $pool := dict "name" .name "labels" .labels "size" $size "min" (int64 (.min | default 0)) "max" (int64 .max) "price" (float64 (.price | default 1)) "arrives_within_s" (int64 (.arrivesWithinSeconds | default 600)) }}
{{- if .clusterApi }}
{{- $_ := set $pool "provider" "cluster-api" }}
{{- $_ := set $pool "group" (printf "%s/%s" .clusterApi.namespace .clusterApi.machineDeployment) }}
{{- else if .grpc }}
{{- $_ := set $pool "provider" "grpc" }}
{{- $_ := set $pool "group" .grpc.group }}
{{- else }}
{{- if not (dig "capacityBuffer" false (.autoscaler | default dict)) }}{{ fail (printf "scaling.nodePools: %s has autoscaler without capacityBuffer: true. Sandboxes never preempt pods, so pods that keep room would keep the nodes that they bring" .name) }}{{ end }}
{{- $_ := set $pool "provider" "capacity-buffer" }}
{{- $_ := set $pool "group" (printf "%s/%s" $.Release.Namespace (include "rollbox.placeholder" (list $ .name))) }}
{{- end }}
{{- $pools = append $pools $pool }}
{{- end }}
{{- toJson $pools }}
{{- end }}

{{- /* Whether a node pool has a provider of a kind. Argument: (list . "grpc"). */}}
{{- define "rollbox.hasProvider" -}}
{{- $kind := index . 1 }}
{{- range (index . 0).Values.scaling.nodePools }}{{ if hasKey . $kind }}true{{ end }}{{ end }}
{{- end }}

{{- define "rollbox.scalingEnv" -}}
{{- if include "rollbox.scaling" . }}
- {name: ROLLBOX_CONTROLPLANE_NODE_POOLS, value: {{ include "rollbox.nodePools" . | quote }}}
- {name: ROLLBOX_CONTROLPLANE_SCALING_DRY_RUN, value: {{ .Values.scaling.dryRun | quote }}}
- {name: ROLLBOX_CONTROLPLANE_SCALING_HEADROOM, value: {{ int64 .Values.scaling.headroom | quote }}}
- {name: ROLLBOX_CONTROLPLANE_SCALING_DOWN_AFTER_MS, value: {{ mul 1000 (int64 .Values.scaling.downAfterSeconds) | quote }}}
{{- if and (include "rollbox.hasProvider" (list . "clusterApi")) .Values.scaling.clusterApi.kubeconfigSecret }}
- {name: ROLLBOX_CONTROLPLANE_SCALING_KUBECONFIG, value: /etc/rollbox/cluster-api/kubeconfig}
{{- end }}
{{- if include "rollbox.hasProvider" (list . "grpc") }}
{{- with .Values.scaling.grpc }}
{{- if not (and .address .serverName .tlsSecret) }}{{ fail "scaling.grpc: a node pool has a grpc provider, so address, serverName and tlsSecret are needed" }}{{ end }}
- {name: ROLLBOX_CONTROLPLANE_SCALING_PROVIDER, value: {{ .address | quote }}}
- {name: ROLLBOX_CONTROLPLANE_SCALING_PROVIDER_NAME, value: {{ .serverName | quote }}}
- {name: ROLLBOX_CONTROLPLANE_SCALING_PROVIDER_TLS_FOLDER, value: /etc/rollbox/node-provider}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rollbox.scalingMounts" -}}
{{- if include "rollbox.scaling" . }}
{{- if and (include "rollbox.hasProvider" (list . "clusterApi")) .Values.scaling.clusterApi.kubeconfigSecret }}
- {name: cluster-api, mountPath: /etc/rollbox/cluster-api, readOnly: true}
{{- end }}
{{- if include "rollbox.hasProvider" (list . "grpc") }}
- {name: node-provider, mountPath: /etc/rollbox/node-provider, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "rollbox.scalingVolumes" -}}
{{- if include "rollbox.scaling" . }}
{{- if and (include "rollbox.hasProvider" (list . "clusterApi")) .Values.scaling.clusterApi.kubeconfigSecret }}
- {name: cluster-api, secret: {secretName: {{ .Values.scaling.clusterApi.kubeconfigSecret }}, defaultMode: 0440}}
{{- end }}
{{- if include "rollbox.hasProvider" (list . "grpc") }}
- {name: node-provider, secret: {secretName: {{ .Values.scaling.grpc.tlsSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}
{{- end }}

{{- /* A pod of the size of a node, which does nothing. Argument: (list . pool labels). */}}
{{- define "rollbox.placeholderPod" -}}
{{- $top := index . 0 }}
{{- $pool := index . 1 }}
metadata:
  labels: {{- index . 2 | toYaml | nindent 4 }}
spec:
  priorityClassName: {{ $top.Release.Name }}-placeholder
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  enableServiceLinks: false
  nodeSelector: {{- merge (dict) $pool.labels $top.Values.sandboxes.nodeSelector | toYaml | nindent 4 }}
  {{- with $top.Values.sandboxes.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $top.Values.images.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: placeholder
      image: {{ include "rollbox.image" (list $top "sidecar") }}
      command: [/rollbox-target]
      resources:
        requests:
          cpu: {{ $pool.size.cpuMillicores }}m
          memory: {{ $pool.size.memoryMebibytes }}Mi
          ephemeral-storage: {{ $pool.size.diskMebibytes }}Mi
          {{- with $pool.size.gpu }}
          nvidia.com/gpu: {{ . }}
          {{- end }}
        limits:
          memory: {{ $pool.size.memoryMebibytes }}Mi
          {{- with $pool.size.gpu }}
          nvidia.com/gpu: {{ . }}
          {{- end }}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}
