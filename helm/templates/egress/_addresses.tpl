{{- /* Never reached, whatever anybody asks for: private, shared, loopback, link-local, metadata, multicast, reserved. */}}
{{- define "rollbox.privateRanges" -}}
{{- toJson (list "0.0.0.0/8" "10.0.0.0/8" "100.64.0.0/10" "127.0.0.0/8" "169.254.0.0/16" "172.16.0.0/12" "192.168.0.0/16" "198.18.0.0/15" "224.0.0.0/4" "240.0.0.0/4") }}
{{- end }}

{{- /* First and last address of a network of version 4, as numbers: templates have no functions for networks. */}}
{{- define "rollbox.firstAddress" -}}
{{- $number := 0 }}{{- range splitList "." (first (splitList "/" .)) }}{{- $number = add (mul $number 256) (int64 .) }}{{- end }}
{{- $size := include "rollbox.addresses" . | int64 }}
{{- mul (div $number $size) $size }}
{{- end }}

{{- define "rollbox.addresses" -}}
{{- $size := 1 }}{{- range until (sub 32 (int (last (splitList "/" .))) | int) }}{{- $size = mul $size 2 }}{{- end }}
{{- $size }}
{{- end }}

{{- /* Whether the first of two networks of version 4 lies in the second one; both may be equal. */}}
{{- define "rollbox.within" -}}
{{- $inner := include "rollbox.firstAddress" (index . 0) | int64 }}{{- $outer := include "rollbox.firstAddress" (index . 1) | int64 }}
{{- $last := add $inner (include "rollbox.addresses" (index . 0) | int64) }}
{{- if and (ge $inner $outer) (le $last (add $outer (include "rollbox.addresses" (index . 1) | int64))) }}true{{ end }}
{{- end }}

{{- /* Of (list RANGES NETWORK): those ranges of version 4 that lie in the network, in JSON. */}}
{{- define "rollbox.rangesWithin" -}}
{{- $network := index . 1 }}{{- $found := list }}
{{- range index . 0 }}
{{- if and (not (contains ":" .)) (include "rollbox.within" (list . $network)) }}{{- $found = append $found . }}{{- end }}
{{- end }}
{{- toJson $found }}
{{- end }}
