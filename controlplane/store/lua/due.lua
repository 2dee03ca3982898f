-- Store.due. ARGV: now, unconfirmed before, the most ids of each list. Returns the four lists of `Due`.
if not intact() then return redis.error_reply('LOST') end
local now, most = tonumber(ARGV[1]), tonumber(ARGV[3])
local function up_to(set, at) return redis.call('ZRANGEBYSCORE', P .. set, '-inf', at, 'LIMIT', 0, most) end
local here, abandoned = {}, {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'deadlines', '(' .. now, '+inf', 'LIMIT', 0, most)) do
  local holder = redis.call('HGET', P .. 's:' .. id, 'holder') or ''
  if here[holder] == nil then
    here[holder] = tonumber(redis.call('HGET', P .. 'lease:replica:' .. holder, 'until') or '0') > now
  end
  if not here[holder] then abandoned[#abandoned + 1] = id end
end
return {up_to('expiries', now), up_to('deadlines', now), up_to('ends', ARGV[2]), abandoned}
