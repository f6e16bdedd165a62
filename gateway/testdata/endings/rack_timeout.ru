# A payment on Rack with rack-timeout, which ends the work with an exception.
require 'net/http'
require 'rack-timeout'

Rack::Timeout::Logger.disable

def tell(what, key)
  Net::HTTP.get(URI("#{ENV['BOOK']}/#{what}/#{key}"))
end

payment = lambda { |env|
  key = env['HTTP_IDEMPOTENCY_KEY']
  tell('begun', key)
  tell('wait', key) if env['HTTP_X_EVENT'] == 'slow'
  tell('ended', key)
  [201, { 'Content-Type' => 'text/plain' }, ['paid']]
}
run Rack::Timeout.new(payment, service_timeout: 2)
