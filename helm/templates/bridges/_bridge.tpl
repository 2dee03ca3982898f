{{- /* Whether a bridge is enabled; absent in an upgrade with --reuse-values from a chart without. Argument: (list . "e2b"). */}}
{{- define "rollbox.bridgeEnabled" -}}
{{- if dig (index . 1) "enabled" false ((index . 0).Values.bridges | default dict) }}true{{ end }}
{{- end }}

{{- define "rollbox.bridgesSecret" -}}
{{- (.Values.existingSecrets.bridgesKey | default (printf "%s-bridges-key" .Release.Name)) }}
{{- end }}

{{- /*
What every bridge has: a Deployment, a Service, a policy and a budget. It is the SDK and nothing of the platform: it
reaches the gateway alone, and its clients bring their keys. Argument: a dict of top, protocol, args (of its own), probe
(a path) and sealing (whether it needs the secret that seals credentials, and a client has to stay with one replica:
what goes on in a sandbox by it, such as the input of a command, is known there alone), and files (how much room it
needs for files of its clients; none: it has no folder that can be written).
*/}}
{{- define "rollbox.bridge" -}}
{{- $top := .top }}
{{- $bridge := index $top.Values.bridges .protocol }}
{{- $me := list $top (printf "bridge-%s" .protocol) }}
{{- $gateway := printf "http://%s.%s.svc.%s:%d" (include "rollbox.gatewayInside" $top) $top.Release.Namespace $top.Values.clusterDomain (int $top.Values.gateway.service.port) }}
{{- $args := concat (list "--listen" "0.0.0.0:8080" "--url" $gateway) .args }}
{{- if $bridge.keysSecret }}{{- $args = concat $args (list "--keys" "/etc/rollbox/keys/keys.toml") }}{{- end }}
{{- if .sealing }}{{- $args = concat $args (list "--secret-file" "/etc/rollbox/bridges/key") }}{{- end }}
{{- /* Absent in an upgrade with --reuse-values from a chart without. */}}
{{- $tls := $bridge.tlsSecret | default "" }}
{{- if $tls }}{{- $args = concat $args (list "--tls-certificate" "/etc/rollbox/tls/tls.crt" "--tls-key" "/etc/rollbox/tls/tls.key") }}{{- end }}
{{- $probe := dict "path" .probe "port" "http" }}
{{- if $tls }}{{- $_ := set $probe "scheme" "HTTPS" }}{{- end }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "rollbox.name" $me }}
  labels: {{- include "rollbox.labels" $me | nindent 4 }}
spec:
  replicas: {{ $bridge.replicas }}
  selector:
    matchLabels: {{- include "rollbox.selector" $me | nindent 6 }}
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels: {{- include "rollbox.labels" $me | nindent 8 }}
      {{- if .sealing }}
      annotations:
        rollbox.dev/bridges-key: {{ (include "rollbox.generated" $top | fromYaml).bridges | sha256sum | trunc 16 | quote }}
      {{- end }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- include "rollbox.podDefaults" $me | nindent 6 }}
      {{- include "rollbox.spread" $me | nindent 6 }}
      containers:
        - name: bridge
          image: {{ include "rollbox.image" (list $top "controlplane") }}
          imagePullPolicy: {{ $top.Values.images.pullPolicy }}
          command: ["python3", "-m", "rollbox_bridges.{{ .protocol }}"]
          args: {{- toYaml $args | nindent 12 }}
          ports:
            - {name: http, containerPort: 8080}
          startupProbe:
            httpGet: {{- toYaml $probe | nindent 14 }}
            periodSeconds: 1
            failureThreshold: 60
          readinessProbe:
            httpGet: {{- toYaml $probe | nindent 14 }}
            periodSeconds: 2
            timeoutSeconds: 3
          livenessProbe:
            httpGet: {{- toYaml $probe | nindent 14 }}
            periodSeconds: 10
            timeoutSeconds: 5
          lifecycle:
            preStop: {sleep: {seconds: 5}}
          resources: {{- toYaml $bridge.resources | nindent 12 }}
          {{- include "rollbox.containerSecurity" $top | nindent 10 }}
          {{- if or .sealing .files $bridge.keysSecret $tls }}
          volumeMounts:
            {{- if .files }}
            - {name: files, mountPath: /tmp}
            {{- end }}
            {{- if .sealing }}
            - {name: bridges, mountPath: /etc/rollbox/bridges, readOnly: true}
            {{- end }}
            {{- if $bridge.keysSecret }}
            - {name: keys, mountPath: /etc/rollbox/keys, readOnly: true}
            {{- end }}
            {{- if $tls }}
            - {name: tls, mountPath: /etc/rollbox/tls, readOnly: true}
            {{- end }}
      volumes:
        {{- if .sealing }}
        - name: bridges
          secret:
            secretName: {{ include "rollbox.bridgesSecret" $top }}
            items: [{key: key, path: key}]
        {{- end }}
        {{- with $bridge.keysSecret }}
        - name: keys
          secret:
            secretName: {{ . }}
            items: [{key: keys.toml, path: keys.toml}]
        {{- end }}
        {{- if .files }}
        - name: files
          emptyDir: {sizeLimit: {{ .files }}}
        {{- end }}
        {{- with $tls }}
        - name: tls
          secret:
            secretName: {{ . }}
        {{- end }}
          {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "rollbox.name" $me }}
  labels: {{- include "rollbox.labels" $me | nindent 4 }}
  {{- with $bridge.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $bridge.service.type }}
  selector: {{- include "rollbox.selector" $me | nindent 4 }}
  {{- if .sealing }}
  sessionAffinity: ClientIP
  {{- end }}
  ports:
    - {name: http, port: {{ $bridge.service.port }}, targetPort: http}
---
{{ include "rollbox.disruption" $me }}
{{- if $top.Values.networkPolicies.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "rollbox.name" $me }}
  labels: {{- include "rollbox.labels" $me | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "rollbox.selector" $me | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Open to all clients; every call except health checks needs a key.
    - ports: [{port: 8080, protocol: TCP}]
  egress:
    # Resolvers: the cluster's are pods or addresses of nodes, whose labels are the cluster's own.
    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
    - to:
        - podSelector:
            matchLabels: {{- include "rollbox.selector" (list $top "gateway") | nindent 14 }}
      ports: [{port: 8080, protocol: TCP}]
{{- end }}
{{- end }}
