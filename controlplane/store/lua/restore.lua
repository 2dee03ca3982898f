-- ARGV: a row. Answers 1 when it was missing. Asks for no intact store: this is what makes it so.
local new = row()
local old = read(new.id)
if old then return old.writer == new.writer and 1 or 0 end
put(new, nil)
return 1
