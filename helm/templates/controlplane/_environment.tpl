{{- /* The control plane's environment variables, volumes and mounts; the operator has only the first part. */}}
{{- define "rollbox.controlplaneEnv" -}}
- {name: ROLLBOX_CONTROLPLANE_BACKEND, value: kubernetes}
- name: ROLLBOX_CONTROLPLANE_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "rollbox.redisSecret" . }}, key: url}}
- {name: ROLLBOX_CONTROLPLANE_NAMESPACE, value: {{ include "rollbox.sandboxNamespace" . }}}
- {name: ROLLBOX_CONTROLPLANE_INSTALLATION, value: {{ .Release.Name }}}
- {name: ROLLBOX_CONTROLPLANE_SIDECAR_IMAGE, value: {{ include "rollbox.image" (list . "sidecar") }}}
- {name: ROLLBOX_CONTROLPLANE_READY_URL, value: {{ printf "http://%s-ready.%s.svc.%s:8082" .Release.Name .Release.Namespace .Values.clusterDomain | quote }}}
- {name: ROLLBOX_CONTROLPLANE_RUNTIME_CLASS, value: {{ .Values.runtimeClass.name }}}
{{- if include "rollbox.lazyPulling" . }}
- {name: ROLLBOX_CONTROLPLANE_LAZY_RUNTIME_CLASS, value: {{ include "rollbox.lazyRuntimeClass" . }}}
- {name: ROLLBOX_CONTROLPLANE_LAZY_IMAGES, value: {{ include "rollbox.lazyImages" . | quote }}}
{{- end }}
{{- if include "rollbox.gpu" . }}
- {name: ROLLBOX_CONTROLPLANE_GPU_DEVICE_CLASS, value: {{ .Values.gpu.deviceClass }}}
- {name: ROLLBOX_CONTROLPLANE_GPU_CLAIM_TEMPLATE, value: {{ include "rollbox.gpuClaimTemplate" . }}}
{{- end }}
{{- with include "rollbox.gpuRuntimeClass" . }}
- {name: ROLLBOX_CONTROLPLANE_GPU_RUNTIME_CLASS, value: {{ . }}}
{{- end }}
- {name: ROLLBOX_CONTROLPLANE_REQUIRED_KERNEL, value: {{ .Values.sandboxes.requiredKernel | quote }}}
- {name: ROLLBOX_CONTROLPLANE_DNS_SHARDS, value: {{ .Values.dns.shards | quote }}}
- {name: ROLLBOX_CONTROLPLANE_STARTS_IN_FLIGHT, value: {{ .Values.controlplane.startsInFlight | quote }}}
- {name: ROLLBOX_CONTROLPLANE_STARTS_PER_NODE, value: {{ .Values.controlplane.startsPerNode | quote }}}
{{- /* The values are absent in an upgrade with --reuse-values from a chart without them. */}}
{{- $capacity := .Values.capacity | default dict }}
- {name: ROLLBOX_CONTROLPLANE_PENDING_PODS, value: {{ ternary (dig "pendingPods" 64 $capacity) 0 (dig "nodesCanBeAdded" false $capacity) | int64 | quote }}}
{{- $overcommit := .Values.sandboxes.overcommit | default dict }}
- {name: ROLLBOX_CONTROLPLANE_OVERCOMMIT_CPU, value: {{ dig "cpu" 0.05 $overcommit | quote }}}
- {name: ROLLBOX_CONTROLPLANE_OVERCOMMIT_MEMORY, value: {{ dig "memory" 0.125 $overcommit | quote }}}
{{- if eq (dig "evictions" "allowed" (.Values.drain | default dict)) "refused" }}
- {name: ROLLBOX_CONTROLPLANE_CORDON_DRAINS, value: "true"}
{{- end }}
- {name: ROLLBOX_CONTROLPLANE_MAX_SANDBOXES, value: {{ int64 .Values.controlplane.maxSandboxes | quote }}}
- {name: ROLLBOX_CONTROLPLANE_IDLE_TIMEOUT_MS, value: {{ mul 1000 .Values.controlplane.idleTimeoutSeconds | quote }}}
- {name: ROLLBOX_CONTROLPLANE_PROBE_EVERY_MS, value: {{ mul 1000 .Values.controlplane.probeEverySeconds | quote }}}
{{- if include "rollbox.packing" . }}
- {name: ROLLBOX_CONTROLPLANE_SCHEDULER, value: {{ include "rollbox.schedulerName" . }}}
{{- end }}
{{- if .Values.priorityClasses.create }}
- {name: ROLLBOX_CONTROLPLANE_PRIORITY_CLASS, value: {{ .Release.Name }}-sandbox}
{{- end }}
{{- with .Values.sandboxes.nodeSelector }}
- {name: ROLLBOX_CONTROLPLANE_NODE_SELECTOR, value: {{ toJson . | quote }}}
{{- end }}
{{- with .Values.sandboxes.tolerations }}
- {name: ROLLBOX_CONTROLPLANE_TOLERATIONS, value: {{ toJson . | quote }}}
{{- end }}
{{- with include "rollbox.pullSecrets" . }}
- {name: ROLLBOX_CONTROLPLANE_IMAGE_PULL_SECRETS, value: {{ . | quote }}}
{{- end }}
{{- $datasets := .Values.datasets | default dict }}
{{- with dig "folders" list $datasets }}
- {name: ROLLBOX_CONTROLPLANE_DATASET_FOLDERS, value: {{ join "," . | quote }}}
{{- end }}
{{- if dig "imageVolumes" false $datasets }}
- {name: ROLLBOX_CONTROLPLANE_IMAGE_VOLUMES, value: "true"}
{{- end }}
{{- with include "rollbox.scratchClass" . }}
- {name: ROLLBOX_CONTROLPLANE_SCRATCH_CLASS, value: {{ . | quote }}}
{{- end }}
{{- if include "rollbox.nodeAgents" . }}
- {name: ROLLBOX_CONTROLPLANE_NODE_AGENTS, value: {{ .Release.Namespace }}/{{ include "rollbox.name" (list . "node") }}}
- {name: ROLLBOX_CONTROLPLANE_NODE_AGENTS_NAME, value: {{ include "rollbox.nodeServer" . }}}
- {name: ROLLBOX_CONTROLPLANE_NODE_AGENTS_TLS, value: /etc/rollbox/node-agents}
- {name: ROLLBOX_CONTROLPLANE_NODE_IMAGES, value: {{ .Values.nodeAgent.imageBudget | quote }}}
{{- end }}
{{- end }}

{{- /* Environment variables for serving, with API keys and signing key, which the operator must not have. */}}
{{- define "rollbox.controlplaneServing" -}}
- {name: ROLLBOX_CONTROLPLANE_API, value: "0.0.0.0:8081"}
- {name: ROLLBOX_CONTROLPLANE_READY, value: "0.0.0.0:8082"}
- {name: ROLLBOX_CONTROLPLANE_ROUTES, value: "0.0.0.0:8083"}
- {name: ROLLBOX_CONTROLPLANE_GATEWAY_URL, value: {{ printf "http://%s.%s.svc.%s:%v" (include "rollbox.gatewayInside" .) .Release.Namespace .Values.clusterDomain .Values.gateway.service.port | quote }}}
{{- with .Values.gateway.portsDomain }}
- {name: ROLLBOX_CONTROLPLANE_PORTS_DOMAIN, value: {{ . | quote }}}
{{- end }}
{{- with .Values.controlplane.operators }}
- {name: ROLLBOX_CONTROLPLANE_OPERATORS, value: {{ join "," . | quote }}}
{{- end }}
- {name: ROLLBOX_CONTROLPLANE_AUDIT_STDOUT, value: {{ ternary "on" "off" .Values.controlplane.audit.stdout | quote }}}
- {name: ROLLBOX_CONTROLPLANE_AUDIT_KEPT, value: {{ .Values.controlplane.audit.kept | int | quote }}}
- {name: ROLLBOX_CONTROLPLANE_CONSOLE, value: {{ ternary "on" "off" .Values.controlplane.console | quote }}}
{{- with .Values.sandboxes.images }}
- {name: ROLLBOX_CONTROLPLANE_IMAGE_DIGESTS, value: {{ .digests | quote }}}
- {name: ROLLBOX_CONTROLPLANE_COMMIT_BYTES, value: {{ mul .commitGibibytesPerOwner 1073741824 | quote }}}
{{- with .rewrites }}
- {name: ROLLBOX_CONTROLPLANE_IMAGE_REWRITES, value: {{ join "," . | quote }}}
{{- end }}
{{- with .plainHttpRegistries }}
- {name: ROLLBOX_CONTROLPLANE_PLAIN_HTTP_REGISTRIES, value: {{ join "," . | quote }}}
{{- end }}
{{- end }}
{{- if include "rollbox.registry" . }}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY, value: {{ include "rollbox.registryHost" . | quote }}}
- {name: ROLLBOX_CONTROLPLANE_MIRROR, value: {{ printf "%s:8085" (include "rollbox.mirrorService" .) | quote }}}
- {name: ROLLBOX_CONTROLPLANE_MIRROR_NAME, value: {{ include "rollbox.mirrorServer" . }}}
- {name: ROLLBOX_CONTROLPLANE_MIRROR_TLS_FOLDER, value: /etc/rollbox/mirror}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_WHEN_FULL, value: {{ .Values.registry.whenFull | default "upstream" | quote }}}
{{- if include "rollbox.ownRegistry" . }}
- {name: ROLLBOX_CONTROLPLANE_COLLECTOR, value: {{ include "rollbox.registryCollector" . | quote }}}
- {name: ROLLBOX_CONTROLPLANE_COLLECTOR_NAME, value: {{ include "rollbox.registryService" . | quote }}}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_BUDGET, value: {{ .Values.registry.budget | default "80%" | quote }}}
{{- end }}
{{- $recorded := .Values.registry.recordedGibibytesPerOwner }}
- {name: ROLLBOX_CONTROLPLANE_RECORDED_BYTES, value: {{ mul (ternary 64 $recorded (kindIs "invalid" $recorded)) 1073741824 | quote }}}
{{- if include "rollbox.registryAsked" . }}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_PUSH, value: {{ include "rollbox.registryPush" . | quote }}}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_ACCOUNT_FILE, value: /etc/rollbox/registry/account}
{{- if include "rollbox.commits" . }}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_COMMITS, value: {{ include "rollbox.registryCommits" . | quote }}}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_TOKENS, value: /etc/rollbox/commits}
{{- if not (include "rollbox.ownRegistry" .) }}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_COMMITS_CA, value: /etc/rollbox/mirror/ca.crt}
{{- end }}
{{- if include "rollbox.builds" . }}
- {name: ROLLBOX_CONTROLPLANE_BUILDER_IMAGE, value: {{ include "rollbox.image" (list . "builder") }}}
- {name: ROLLBOX_CONTROLPLANE_BUILDER_CPU_MILLICORES, value: {{ .Values.builds.limits.cpuMillicores | int64 | quote }}}
- {name: ROLLBOX_CONTROLPLANE_BUILDER_MEMORY_BYTES, value: {{ mul 1048576 .Values.builds.limits.memoryMebibytes | quote }}}
- {name: ROLLBOX_CONTROLPLANE_BUILDER_DISK_BYTES, value: {{ mul 1048576 .Values.builds.limits.diskMebibytes | quote }}}
- {name: ROLLBOX_CONTROLPLANE_BUILDER_STATE, value: {{ .Values.builds.state | quote }}}
- {name: ROLLBOX_CONTROLPLANE_BUILDER_KEEP_MS, value: {{ mul 1000 .Values.builds.keepSeconds | quote }}}
{{- end }}
{{- end }}
{{- if or (include "rollbox.ownRegistry" .) .Values.registry.external.ownAuthority }}
- {name: ROLLBOX_CONTROLPLANE_REGISTRY_CA, value: /etc/rollbox/registry/ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.sandboxes.ownerPullSecrets }}
{{- if not (include "rollbox.registry" $) }}{{ fail "sandboxes.ownerPullSecrets needs registry.enabled: nodes have no credentials of one owner alone, and start what they have for anybody" }}{{ end }}
- {name: ROLLBOX_CONTROLPLANE_OWNER_PULL_SECRETS, value: {{ toJson . | quote }}}
{{- end }}
{{- if .Values.pools.agentSandbox }}
- {name: ROLLBOX_CONTROLPLANE_AGENT_SANDBOX, value: "true"}
{{- end }}
{{- include "rollbox.scalingEnv" . }}
{{- include "rollbox.egressServing" . }}
{{- include "rollbox.directServing" . }}
{{- include "rollbox.webhooksEnv" . }}
- {name: ROLLBOX_CONTROLPLANE_API_KEYS_FILE, value: /etc/rollbox/api-keys/keys}
- {name: ROLLBOX_CONTROLPLANE_SIGNING_KEY_FILE, value: /etc/rollbox/signing/tls.key}
{{- end }}

{{- /* What the operator has of them too. */}}
{{- define "rollbox.operatorMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if include "rollbox.nodeAgents" . }}
- {name: node-agents, mountPath: /etc/rollbox/node-agents, readOnly: true}
{{- end }}
{{- end }}

{{- define "rollbox.operatorVolumes" -}}
- {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- if include "rollbox.nodeAgents" . }}
- {name: node-agents, secret: {secretName: {{ include "rollbox.name" (list . "node") }}-client, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- define "rollbox.controlplaneMounts" -}}
{{- if include "rollbox.registry" . }}
- {name: mirror, mountPath: /etc/rollbox/mirror, readOnly: true}
{{- end }}
{{- if include "rollbox.registryAsked" . }}
- {name: registry, mountPath: /etc/rollbox/registry, readOnly: true}
{{- end }}
{{- if include "rollbox.commits" . }}
- {name: commits, mountPath: /etc/rollbox/commits, readOnly: true}
{{- end }}
{{- if include "rollbox.builds" . }}
- {name: contexts, mountPath: /var/tmp}
{{- end }}
{{- include "rollbox.scalingMounts" . }}
{{- include "rollbox.egressMounts" . }}
{{- include "rollbox.directMounts" . }}
{{- include "rollbox.webhooksMounts" . }}
- {name: api-keys, mountPath: /etc/rollbox/api-keys, readOnly: true}
- {name: signing, mountPath: /etc/rollbox/signing, readOnly: true}
{{ include "rollbox.operatorMounts" . }}
{{- end }}

{{- define "rollbox.controlplaneVolumes" -}}
{{- if include "rollbox.registry" . }}
- {name: mirror, secret: {secretName: {{ include "rollbox.name" (list . "mirror") }}-client, defaultMode: 0440}}
{{- end }}
{{- if include "rollbox.registryAsked" . }}
- {name: registry, secret: {secretName: {{ include "rollbox.registryAccount" . }}, defaultMode: 0440}}
{{- end }}
{{- if include "rollbox.commits" . }}
- {name: commits, secret: {secretName: {{ include "rollbox.name" (list . "registry") }}-commits, defaultMode: 0440}}
{{- end }}
{{- if include "rollbox.builds" . }}
- {name: contexts, emptyDir: {sizeLimit: 16Gi}}
{{- end }}
{{- include "rollbox.scalingVolumes" . }}
{{- include "rollbox.egressVolumes" . }}
{{- include "rollbox.directVolumes" . }}
{{- include "rollbox.webhooksVolumes" . }}
- {name: api-keys, secret: {secretName: {{ include "rollbox.apiKeysSecret" . }}, items: [{key: keys, path: keys}]}}
- {name: signing, secret: {secretName: {{ include "rollbox.signingSecret" . }}, items: [{key: tls.key, path: tls.key}]}}
{{ include "rollbox.operatorVolumes" . }}
{{- end }}

{{- /* The pull secrets that all sandboxes have, the private registry's among them. */}}
{{- define "rollbox.pullSecrets" -}}
{{- $names := .Values.sandboxes.imagePullSecrets }}
{{- if include "rollbox.ownRegistry" . }}{{ $names = append $names (printf "%s-pull" (include "rollbox.name" (list . "registry"))) }}{{ end }}
{{- join "," $names }}
{{- end }}

{{- define "rollbox.controlplaneChecksums" -}}
{{- $secrets := include "rollbox.generated" . | fromYaml }}
rollbox.dev/api-keys: {{ $secrets.keys | sha256sum | trunc 16 | quote }}
rollbox.dev/signing-key: {{ $secrets.certificate | sha256sum | trunc 16 | quote }}
{{- if include "rollbox.registry" . }}
rollbox.dev/mirror: {{ (include "rollbox.registrySecrets" . | fromYaml).client.certificate | sha256sum | trunc 16 | quote }}
{{- end }}
{{- if include "rollbox.egress" . }}
rollbox.dev/egress: {{ toJson .Values.egress.presets | sha256sum | trunc 16 | quote }}
{{ include "rollbox.feedChecksum" . }}
{{- end }}
rollbox.dev/redis: {{ printf "%s%s" .Values.redis.url $secrets.password | sha256sum | trunc 16 | quote }}
{{- end }}
