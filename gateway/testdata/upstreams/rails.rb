# A service on Rails with its defaults, on Puma.
require 'action_controller/railtie'
require 'puma'

RUNS = Hash.new(0)

class PaymentsController < ActionController::API
  def create
    RUNS[request.headers['Idempotency-Key'] || ''] += 1
    render plain: 'paid', status: 201
  end

  def take
    taken = RUNS.dup
    RUNS.clear
    render json: taken
  end
end

class Shop < Rails::Application
  config.logger = Logger.new(nil)
  config.secret_key_base = 'x' * 64
  config.eager_load = false
  config.hosts.clear
  routes.append do
    post '/payments', to: 'payments#create'
    get ARGV[0], to: 'payments#take'
  end
end
Shop.initialize!

server = Puma::Server.new(Shop, Puma::Events.null, persistent_timeout: 1) # a broken request on a kept connection hangs for that long
server.add_tcp_listener('127.0.0.1', 0)
server.run
puts server.connected_ports[0]
$stdout.flush
sleep
