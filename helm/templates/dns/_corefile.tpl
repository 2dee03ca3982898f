{{- /*
Serves the names of sandboxes and nothing else. There is no cache: a cached negative answer would hide a new sandbox,
and the kubernetes plugin answers from memory anyway. It watches only the Services of this installation.
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
