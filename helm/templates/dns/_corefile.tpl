{{- /*
Names of sandboxes, nothing else. No cache: a sandbox that has just come must not be hidden behind an answer from before,
and the plugin answers from memory anyway. Only the Services of this installation are watched.
*/}}
{{- define "rollbox.corefile" -}}
{{ .Values.clusterDomain }}:5353 {
    errors
    kubernetes {{ .Values.clusterDomain }} {
        namespaces {{ include "rollbox.sandboxNamespace" . }}
        labels rollbox.dev/installation={{ .Release.Name }}
        ttl 1
    }
    health :8080 {
        lameduck 5s
    }
    ready :8181
    prometheus :9153
}
{{- end }}
