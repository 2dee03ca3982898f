-- Store.restore. Returns 1 when it was stored: there was no record, or an older one in a store that is
-- being rebuilt. Works on a lost store, since rebuilds use it.
-- args: ROW
local ORDER = {requested = 1, queued = 2, starting = 3, warm = 4, running = 5, ending = 6, ended = 7}
local old = read(a.id)
if old and old.writer == a.writer then return 1 end
local later = old and tonumber(a.version) > tonumber(old.version) and ORDER[a.state] >= ORDER[old.state]
if old and (intact() or not later) then return 0 end
put(a, old)
return 1
