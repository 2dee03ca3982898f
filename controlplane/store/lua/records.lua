-- `ids` are separated by line feeds. Returns record, when it ended, record, when it ended, ...; '' for what there is
-- not.
-- args: ids
if not intact() then return redis.error_reply('LOST') end
local found = {}
for id in string.gmatch(a.ids, '[^\n]+') do
  local f = redis.call('HMGET', P .. 's:' .. id, 'record', 'ended')
  found[#found + 1] = f[1] or ''
  found[#found + 1] = f[2] or ''
end
return found
