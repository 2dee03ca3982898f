//! The calls of `agent.proto` that a simulation makes, for one sidecar; all others are not implemented.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Code as GrpcCode, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};
use wire::Problem;
use wire::agent::{self, ExecRequest, UsageReport};

use super::sidecar::Sidecar;

/// The prefix of the paths of all calls.
const AGENT: &str = "/rollbox.agent.v1.Agent/";

/// Answers one sandbox's calls.
pub fn service(
    sidecar: Arc<Sidecar>,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    service_fn(move |request: Request<Incoming>| {
        let sidecar = Arc::clone(&sidecar);
        async move { Ok::<_, Infallible>(answer(sidecar, request).await) }
    })
}

async fn answer(sidecar: Arc<Sidecar>, request: Request<Incoming>) -> Response<Body> {
    let shown = request.headers().get("authorization").map(|value| value.as_bytes().to_vec());
    if let Err(problem) = sidecar.check(shown.as_deref()) {
        return refused(&problem).into_http();
    }
    match request.uri().path().strip_prefix(AGENT) {
        Some("Exec") => {
            let run = move |request: tonic::Request<ExecRequest>| {
                let sidecar = Arc::clone(&sidecar);
                async move { Ok(tonic::Response::new(sidecar.exec(request.into_inner()).await)) }
            };
            Grpc::new(ProstCodec::default()).unary(service_fn(run), request).await
        }
        Some("Health") => {
            let told = move |_: tonic::Request<agent::HealthRequest>| {
                let health = sidecar.health();
                async move { Ok(tonic::Response::new(health)) }
            };
            Grpc::new(ProstCodec::default()).unary(service_fn(told), request).await
        }
        Some("Configure") => {
            let bound = |_: tonic::Request<agent::ConfigureRequest>| async {
                Ok(tonic::Response::new(agent::Configured {}))
            };
            Grpc::new(ProstCodec::default()).unary(service_fn(bound), request).await
        }
        Some("Usage") => {
            let used = |_: tonic::Request<agent::UsageRequest>| async {
                Ok(tonic::Response::new(UsageReport::default()))
            };
            Grpc::new(ProstCodec::default()).unary(service_fn(used), request).await
        }
        _ => Status::unimplemented("a played sidecar has no such call").into_http(),
    }
}

fn refused(problem: &Problem) -> Status {
    Status::with_details(GrpcCode::Unauthenticated, problem.detail.clone(), problem.encode().into())
}
