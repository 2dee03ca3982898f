//! Compiles the contract's protocol files with a compiler written in Rust, so that no `protoc` has to be installed.
use std::error::Error;

const CONTRACT: &str = "../../../contract";

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["agent.proto", "egress.proto", "routes.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={CONTRACT}/{file}");
    }
    let rpc = std::env::var_os("CARGO_FEATURE_RPC").is_some();
    let descriptors = protox::compile(files, [CONTRACT])?;
    tonic_prost_build::configure()
        .build_client(rpc)
        .build_server(rpc)
        .build_transport(false)
        .bytes(".rollbox.agent.v1.ExecRequest.stdin")
        // Streamed data: passed on without a copy.
        .bytes(".rollbox.agent.v1.Chunk.data")
        .bytes(".rollbox.agent.v1.StdinChunk.data")
        .bytes(".rollbox.agent.v1.FileChunk.data")
        .bytes(".rollbox.agent.v1.WriteFileRequest.data")
        .bytes(".rollbox.agent.v1.WriteArchiveRequest.data")
        .bytes(".rollbox.agent.v1.PortFrame.data")
        .compile_fds(descriptors)?;
    Ok(())
}
