-- Store.append. Lines are separated by line feeds, oldest first.
-- args: now:number name lines most:number ttl:number
if not intact() then return redis.error_reply('LOST') end
local list = P .. 'list:' .. a.name
local till = redis.call('GET', list .. ':until')
if till and tonumber(till) <= a.now then redis.call('DEL', list) end
for line in string.gmatch(a.lines, '[^\n]+') do redis.call('RPUSH', list, line) end
redis.call('LTRIM', list, -a.most, -1)
-- Later than `until`, which goes by the callers' clocks.
redis.call('PEXPIRE', list, a.ttl + 60000)
redis.call('SET', list .. ':until', a.now + a.ttl, 'PX', a.ttl + 60000)
return 1
