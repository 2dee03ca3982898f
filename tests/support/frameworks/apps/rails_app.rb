# Rails with its protection of forms, on Puma: rails_app.rb PORT
ENV['RAILS_ENV'] = 'development'
require 'digest'
require 'action_controller/railtie'

GO = Queue.new

class App < Rails::Application
  config.root = __dir__
  config.eager_load = false
  config.secret_key_base = 'of tests' * 8
  config.logger = Logger.new($stdout)
  config.session_store :cookie_store, key: '_session'
  config.action_controller.forgery_protection_origin_check = true
  routes.append do
    root to: 'pages#form'
    post 'send', to: 'pages#deliver'
    get 'done', to: 'pages#done'
    get 'slash', to: redirect('/slash/'), constraints: ->(request) { !request.original_fullpath.end_with?('/') }
    get 'slash', to: 'pages#slash'
    post 'upload', to: 'pages#upload'
    post 'empty', to: 'pages#empty'
    get 'events', to: 'events#events'
  end
end

class PagesController < ActionController::Base
  include Rails.application.routes.url_helpers
  protect_from_forgery with: :exception, except: %i[upload empty]

  def form
    field = %(<input name="authenticity_token" value="#{form_authenticity_token}">)
    render html: %(<form method="post" action="send">#{field}</form>).html_safe
  end

  def deliver
    session[:said] = params[:said]
    redirect_to action: :done
  end

  def done
    render plain: "#{session[:said]} at #{request.path}"
  end

  def slash
    render plain: 'slash'
  end

  def upload
    sent = params[:file]
    render plain: "#{sent.original_filename} #{Digest::SHA256.hexdigest(sent.read)}"
  end

  def empty
    GO << 1
    render plain: request.body.read.size.to_s
  end
end

class EventsController < ActionController::Base
  include ActionController::Live

  def events
    response.headers['Content-Type'] = 'text/event-stream'
    response.headers['Last-Modified'] = Time.now.httpdate
    response.stream.write("data: first\n\n")
    GO.pop
    response.stream.write("data: second\n\n")
  ensure
    response.stream.close
  end
end

App.initialize!
require 'rack/handler/puma'
Rack::Handler::Puma.run(App, Host: '127.0.0.1', Port: ARGV[0].to_i, Silent: true)
