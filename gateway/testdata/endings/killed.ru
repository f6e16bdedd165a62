# A payment on Rack, whose process can die, also in the middle of its answer.
require 'net/http'

def tell(what, key)
  Net::HTTP.get(URI("#{ENV['BOOK']}/#{what}/#{key}"))
end

def die
  Process.kill(:KILL, Process.pid)
  sleep
end

run(lambda { |env|
  key, event = env.values_at('HTTP_IDEMPOTENCY_KEY', 'HTTP_X_EVENT')
  env['rack.input'].read
  tell('begun', key)
  raise 'no money' if event == 'thrown'

  tell('wait', key) if event == 'slow'
  die if event == 'killed'
  answer = Enumerator.new do |out|
    out << 'half of it, '
    die if event == 'part'
    raise 'no money' if event == 'thrown late'

    tell('ended', key)
    out << 'and the rest'
  end
  [201, { 'Content-Type' => 'text/plain' }, answer]
})
