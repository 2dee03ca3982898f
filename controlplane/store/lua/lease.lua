-- Store.lease. ARGV: now, name, holder, ttl. Returns 1 when the holder has it.
if not intact() then return redis.error_reply('LOST') end
local lease, now, holder, ttl = P .. 'lease:' .. ARGV[2], tonumber(ARGV[1]), ARGV[3], tonumber(ARGV[4])
local held = redis.call('HMGET', lease, 'holder', 'until')
if held[1] and held[1] ~= holder and tonumber(held[2]) > now then return 0 end
if ttl == 0 then
  redis.call('DEL', lease)
  return 0
end
redis.call('HSET', lease, 'holder', holder, 'until', now + ttl)
-- So that the names of dead replicas do not accumulate. Later than `until`, which goes by the callers' clocks.
redis.call('PEXPIRE', lease, ttl + 60000)
return 1
