{{- define "rollbox.redisConfig" -}}
bind * -::*
port 6379
dir /data
# Every write is on disk within a second; there are no snapshots.
appendonly yes
appendfsync everysec
save ""
maxmemory {{ .Values.redis.maxMemoryMegabytes }}mb
# Refuse writes when memory is full: an evicted record would be a running sandbox that is not counted.
maxmemory-policy noeviction
requirepass {{ (include "rollbox.generated" . | fromYaml).password }}
{{- end }}
