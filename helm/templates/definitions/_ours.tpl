{{- /* Whether this release may install or upgrade a definition: not if another release or kubectl has applied it.
Argument: (list . text). */}}
{{- define "rollbox.definitionIsOurs" -}}
{{- $release := (index . 0).Release }}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1 | fromYaml).metadata.name }}
{{- $by := dig "metadata" "annotations" (dict) $there }}
{{- $mine := and (eq (get $by "meta.helm.sh/release-name") $release.Name) (eq (get $by "meta.helm.sh/release-namespace") $release.Namespace) }}
{{- if or (not $there) $mine }}true{{ end }}
{{- end }}
