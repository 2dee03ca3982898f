-- ARGV: ids. Returns record, when it ended, record, when it ended, ...; '' for what there is not.
if not intact() then return redis.error_reply('LOST') end
local found = {}
for _, id in ipairs(ARGV) do
  local f = redis.call('HMGET', P .. 's:' .. id, 'record', 'ended')
  found[#found + 1] = f[1] or ''
  found[#found + 1] = f[2] or ''
end
return found
