-- Store.lease. Returns 1 when the holder has it.
-- args: now:number name holder ttl:number
if not intact() then return redis.error_reply('LOST') end
local lease = P .. 'lease:' .. a.name
local held = redis.call('HMGET', lease, 'holder', 'until')
if held[1] and held[1] ~= a.holder and tonumber(held[2]) > a.now then return 0 end
if a.ttl == 0 then
  redis.call('DEL', lease)
  return 0
end
redis.call('HSET', lease, 'holder', a.holder, 'until', a.now + a.ttl)
-- So that the names of dead replicas do not accumulate. Later than `until`, which goes by the callers' clocks.
redis.call('PEXPIRE', lease, a.ttl + 60000)
return 1
