-- Store.lines. Returns the newest lines, oldest of them first.
-- args: now:number name most:number
if not intact() then return redis.error_reply('LOST') end
local list = P .. 'list:' .. a.name
local till = redis.call('GET', list .. ':until')
if not till or tonumber(till) <= a.now then return {} end
return redis.call('LRANGE', list, -a.most, -1)
