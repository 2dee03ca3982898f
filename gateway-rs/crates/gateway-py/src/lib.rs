//! The gateway as the Python module `rollbox_gateway`: runs it, and gives Python the Rust side of the contract, so
//! that tests can compare. Nothing else; the types are in `rollbox_gateway.pyi`.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use token::Verifier;
use wire::{Code, Problem};

#[pymodule]
mod rollbox_gateway {
    #[pymodule_export]
    use super::{
        check_exec_request, decode_details, encode_details, encode_problem, error_table, serve, verify_token,
    };
}

/// Runs the gateway with the settings of the environment variables; returns the exit status.
#[pyfunction]
fn serve(py: Python<'_>) -> u8 {
    py.detach(program::process::run_from_environment::<gateway::Running>)
}

/// Every row of the error table with every column.
#[pyfunction]
fn error_table(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    Code::ALL.into_iter().map(|code| row(py, code)).collect()
}

fn row(py: Python<'_>, code: Code) -> PyResult<Bound<'_, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("code", code.name())?;
    row.set_item("http", code.http())?;
    row.set_item("grpc", code.grpc())?;
    row.set_item("fault", code.fault().name())?;
    row.set_item("retry", code.retry().name())?;
    row.set_item("mask_sample", code.mask_sample())?;
    row.set_item("title", code.title())?;
    row.set_item("hint", code.hint())?;
    Ok(row)
}

/// The JSON of a problem.
#[pyfunction]
fn encode_problem(
    code: &str,
    detail: String,
    details: BTreeMap<String, String>,
    request_id: &str,
    retry_after_ms: Option<u64>,
) -> PyResult<String> {
    Ok(problem(code, detail, details)?.to_json(request_id, retry_after_ms).to_string())
}

/// The bytes of a problem in a gRPC status.
#[pyfunction]
fn encode_details<'py>(
    py: Python<'py>,
    code: &str,
    detail: String,
    details: BTreeMap<String, String>,
) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &problem(code, detail, details)?.encode()))
}

/// The problem of a gRPC status.
#[pyfunction]
fn decode_details(details: &[u8]) -> Option<(&'static str, String, BTreeMap<String, String>)> {
    let problem = Problem::decode(details)?;
    Some((problem.code.name(), problem.detail, problem.details))
}

/// The claims of a token, or why it is refused.
#[pyfunction]
fn verify_token<'py>(
    py: Python<'py>,
    public_key: &str,
    token: &str,
    now_unix_s: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let verifier = Verifier::new(public_key).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let claims = match verifier.verify(token, now_unix_s) {
        Ok(claims) => claims,
        Err(refusal) => return Ok(refusal_json(&refusal).into_pyobject(py)?.into_any()),
    };
    let said = PyDict::new(py);
    said.set_item("sandbox_id", &*claims.sandbox_id)?;
    said.set_item("owner", &*claims.owner)?;
    said.set_item("scopes", claims.scopes.to_vec())?;
    said.set_item("expires_at_s", claims.expires_at_s)?;
    said.set_item("settings", claims.settings.as_deref())?;
    Ok(said.into_any())
}

/// Why the gateway would refuse this body of an exec request.
#[pyfunction]
fn check_exec_request(body: &[u8]) -> Option<String> {
    gateway::exec::decode(body, || "checked".to_owned()).err().map(|refusal| refusal_json(&refusal))
}

fn problem(code: &str, detail: String, details: BTreeMap<String, String>) -> PyResult<Problem> {
    let code = Code::from_name(code)
        .ok_or_else(|| PyValueError::new_err(format!("{code:?} is not in contract/errors.toml")))?;
    Ok(Problem { code, detail, details })
}

fn refusal_json(problem: &Problem) -> String {
    problem.to_json("", None).to_string()
}
