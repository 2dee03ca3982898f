# Sinatra with Rack's protections, on Puma: sinatra_app.rb PORT
require 'digest'
require 'sinatra'

GO = Queue.new
set :port, ARGV[0].to_i
set :bind, '127.0.0.1'
set :server, :puma
set :environment, :production
enable :sessions
set :session_secret, 'of tests' * 8
use Rack::Protection::AuthenticityToken, allow_if: ->(env) { %w[/upload /empty].include?(env['PATH_INFO']) }

get '/' do
  token = Rack::Protection::AuthenticityToken.token(session)
  %(<form method="post" action="send"><input name="authenticity_token" value="#{token}"></form>)
end

post '/send' do
  session[:said] = params[:said]
  redirect to('/done'), 303
end

get '/done' do
  "#{session[:said]} at #{request.path_info}"
end

get '/slash' do
  redirect '/slash/'
end

get '/slash/' do
  'slash'
end

post '/upload' do
  "#{params[:file][:filename]} #{Digest::SHA256.hexdigest(params[:file][:tempfile].read)}"
end

post '/empty' do
  GO << 1
  request.body.read.size.to_s
end

get '/events' do
  content_type 'text/event-stream'
  stream do |out|
    out << "data: first\n\n"
    GO.pop
    out << "data: second\n\n"
  end
end
