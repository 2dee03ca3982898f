{{- /* Whether sandboxes may have a direct network; the values are absent in an upgrade with --reuse-values from a chart without. */}}
{{- define "rollbox.direct" -}}
{{- $direct := dig "direct" dict (.Values.egress | default dict) }}
{{- if dig "enabled" false $direct }}
{{- if not .Values.networkPolicies.enabled }}{{ fail "egress.direct.enabled needs networkPolicies.enabled: without policies a sandbox reaches everything" }}{{ end }}
{{- if .Values.networkPolicies.acceptUnenforced }}{{ fail "egress.direct.enabled is refused with networkPolicies.acceptUnenforced: what nobody enforces allows everything" }}{{ end }}
{{- if not (dig "networks" dict $direct) }}{{ fail "egress.direct.networks is empty, so there would be no direct network: name one, or disable egress.direct" }}{{ end -}}
true
{{- end }}
{{- end }}

{{- define "rollbox.directServing" -}}
{{- if include "rollbox.direct" . }}
- {name: ROLLBOX_CONTROLPLANE_DIRECT_NETWORKS_FILE, value: /etc/rollbox/direct/networks.json}
{{- end }}
{{- end }}

{{- define "rollbox.directMounts" -}}
{{- if include "rollbox.direct" . }}
- {name: direct, mountPath: /etc/rollbox/direct, readOnly: true}
{{- end }}
{{- end }}

{{- define "rollbox.directVolumes" -}}
{{- if include "rollbox.direct" . }}
- {name: direct, configMap: {name: {{ .Release.Name }}-direct}}
{{- end }}
{{- end }}

{{- /* What the control plane is told of the networks: not their rules, which are policies of the cluster. */}}
{{- define "rollbox.directNetworks" -}}
{{- $told := dict }}
{{- $servers := dig "dns" "servers" list .Values.egress.direct }}
{{- range $name, $network := .Values.egress.direct.networks }}
{{- $addresses := false }}{{- $names := false }}
{{- range $network.allow }}{{- if hasKey . "host" }}{{- $names = true }}{{- else }}{{- $addresses = true }}{{- end }}{{- end }}
{{- $one := dict "owners" ($network.owners | default list) "addresses" $addresses "names" $names }}
{{- if $names }}{{- $_ := set $one "resolvers" $servers }}{{- end }}
{{- $_ := set $told $name $one }}
{{- end }}
{{- toJson $told }}
{{- end }}

{{- define "rollbox.directSelector" -}}
{{ include "rollbox.sandboxSelector" (index . 0) }}
rollbox.dev/network: {{ index . 1 | quote }}
{{- end }}

{{- /* The block of one address rule: of (list ROOT NAME RULE). What is private needs an exception; what lies in it goes out. */}}
{{- define "rollbox.directBlock" -}}
{{- $values := (index . 0).Values.egress }}{{- $cidr := (index . 2).cidr }}
cidr: {{ $cidr | quote }}
{{- if contains ":" $cidr }}
{{- $except := list }}{{- if eq $cidr "2000::/3" }}{{- range $values.blockedCidrs }}{{- if contains ":" . }}{{- $except = append $except . }}{{- end }}{{- end }}{{- end }}
{{- with $except }}
except: {{ toJson . }}
{{- end }}
{{- else }}
{{- $allowed := false }}
{{- range $values.allowedPrivateCidrs }}{{- if and (not (contains ":" .)) (include "rollbox.within" (list $cidr .)) }}{{- $allowed = true }}{{- end }}{{- end }}
{{- $never := concat (include "rollbox.privateRanges" . | fromJsonArray) $values.blockedCidrs | uniq }}
{{- if not $allowed }}
{{- range $never }}
{{- if and (not (contains ":" .)) (include "rollbox.within" (list $cidr .)) }}{{ fail (printf "egress.direct.networks.%s: %s lies in %s, which no sandbox reaches: name it in egress.allowedPrivateCidrs if it is meant" (index $ 1) $cidr .) }}{{ end }}
{{- end }}
{{- with include "rollbox.rangesWithin" (list $never $cidr) | fromJsonArray }}
except: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Ports of a rule, of a NetworkPolicy (`number`) or of Cilium, where they are text. */}}
{{- define "rollbox.directPorts" -}}
{{- $rule := index . 0 }}{{- $cilium := index . 1 }}
{{- range $rule.ports }}
{{- $ends := splitList "-" (toString .) }}
- protocol: {{ $rule.protocol | default "TCP" }}
  port: {{ if $cilium }}{{ first $ends | quote }}{{ else }}{{ first $ends }}{{ end }}
  {{- if gt (len $ends) 1 }}
  endPort: {{ last $ends }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* A host as Cilium writes it. Its `*.` is one level, and `**.` any; here a star is for names at any depth. */}}
{{- define "rollbox.directHost" -}}
{{- if hasPrefix "*." . }}{matchPattern: {{ printf "**.%s" (trimPrefix "*." .) | quote }}}{{ else }}{matchName: {{ . | quote }}}{{ end }}
{{- end }}
