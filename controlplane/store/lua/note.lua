-- Store.note. Returns the text or ''.
-- args: now:number name
if not intact() then return redis.error_reply('LOST') end
local kept = redis.call('HMGET', P .. 'note:' .. a.name, 'text', 'until')
return kept[1] and tonumber(kept[2]) > a.now and kept[1] or ''
