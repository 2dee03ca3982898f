-- ARGV: this run of Redis, as it calls itself. Answers 1 when it is another one than the last that was seen: its file
-- may lack what was acknowledged last (up to two seconds of it where the disk is busy), so the store counts as lost
-- until the replicas and the cluster have said what they know.
local before = redis.call('GET', P .. 'run')
if before == ARGV[1] then return 0 end
redis.call('SET', P .. 'run', ARGV[1])
if not before then return 0 end
redis.call('DEL', P .. 'intact', P .. 'rebuild')
return 1
