-- Store.recount. Sums use over the records, and corrects `used:` where it differs.
-- Returns owner, {counted}, {sum over the records}, ... of each that was wrong; owner '' is all owners together.
if not intact() then return redis.error_reply('LOST') end
local there = {[''] = {0, 0, 0, 0, 0}}
for state in pairs(LIVE) do
  for _, id in ipairs(redis.call('ZRANGE', P .. 'in:' .. state, 0, -1)) do
    local f = redis.call('HMGET', P .. 's:' .. id, 'owner', 'cpu', 'memory', 'gpu', 'weighed')
    local owner = f[1]
    if owner then
      local one = weight({cpu = f[2] or '0', memory = f[3] or '0', gpu = f[4] or '0'}, state)
      there[owner] = there[owner] or {0, 0, 0, 0, 0}
      for i = 1, #RESOURCES do
        there[owner][i], there[''][i] = there[owner][i] + one[i], there[''][i] + one[i]
      end
      -- A version without `used:` wrote it; the corrected `used:` includes it.
      if f[5] ~= state then redis.call('HSET', P .. 's:' .. id, 'weighed', state) end
    end
  end
end
for _, owner in ipairs(redis.call('SMEMBERS', P .. 'owners')) do
  if not there[owner] then
    redis.call('SREM', P .. 'owners', owner)
    there[owner] = {0, 0, 0, 0, 0}
  end
end
local wrong = {}
for owner, sums in pairs(there) do
  local counted, differs = redis.call('HMGET', P .. 'used:' .. owner, unpack(RESOURCES)), false
  for i = 1, #RESOURCES do
    counted[i] = tonumber(counted[i] or '0')
    differs = differs or counted[i] ~= sums[i]
  end
  if differs then
    wrong[#wrong + 1], wrong[#wrong + 2], wrong[#wrong + 3] = owner, counted, sums
    use(owner, sums, counted)
  end
end
return wrong
