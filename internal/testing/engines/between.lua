-- between: stands for redis in a script, and does to its commands what an engine does. It is put
-- before a script's own text as one line, so that those of the script keep their numbers; @name is
-- filled in.
local redis = (function(real)
  local refused, info, nosetget = @refused, @info, @nosetget
  local function wrap(call, raise)
    return function(name, ...)
      local word = string.upper(name)
      local refusal = refused[word]
      if nosetget and word == 'SET' then
        for i = 3, select('#', ...) do
          if string.upper((select(i, ...))) == 'GET' then refusal = '@syntax' end
        end
      end
      if refusal then
        if raise then error({err = refusal}) end
        return {err = refusal}
      end
      local answer = call(name, ...)
      if word == 'INFO' and type(answer) == 'string' then
        for line, value in pairs(info) do
          if value == '' then
            answer = string.gsub(answer, line .. ':[^\r\n]*\r\n', '')
          else
            answer = string.gsub(answer, line .. ':[^\r\n]*', line .. ':' .. value)
          end
        end
      end
      return answer
    end
  end
  return setmetatable({call = wrap(real.call, true), pcall = wrap(real.pcall, false)}, {__index = real})
end)(redis)
