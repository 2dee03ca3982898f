{{- define "rollbox.redisConfig" -}}
bind * -::*
port 6379
dir /data
# Every write is on the disk within a second; no snapshots beside it.
appendonly yes
appendfsync everysec
save ""
maxmemory {{ .Values.redis.maxMemoryMegabytes }}mb
# A record that silently goes would be a sandbox that nobody counts: refuse instead.
maxmemory-policy noeviction
requirepass {{ (include "rollbox.generated" . | fromYaml).password }}
{{- end }}
