-- `run` is the `run_id` of this Redis process. Returns 1 when it differs from the last one that was seen: Redis was
-- restarted, and its append-only file may lack the last acknowledged writes (of up to two seconds if the disk is busy).
-- So the store is marked as lost, until it is rebuilt from the replicas and the cluster.
-- args: run
local before = redis.call('GET', P .. 'run')
if before == a.run then return 0 end
redis.call('SET', P .. 'run', a.run)
if not before then return 0 end
redis.call('DEL', P .. 'intact', P .. 'rebuild')
return 1
