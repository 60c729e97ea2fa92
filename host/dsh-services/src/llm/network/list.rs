//! A provider's own list of its models.

use dsh_seam::ModelFailure;
use dsh_seam::services::{Clock, SystemClock};
use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout_at;

use super::super::provider::ProviderConfig;
use super::advice::Refusal;
use super::answer::header;
use super::client::Provider;
use super::times::{Times, Waited};
use super::{error, waits};
use reqwest::header::{CONTENT_TYPE, LOCATION};

/// The longest list that is read: routers have hundreds of models with a page of text each.
const MAX_LIST_BYTES: usize = 16 << 20;

/// How many models a page may have where lists come in pages; what a list of Messages has at most.
const PAGE: &str = "1000";

/// How many pages are read: no provider has as many.
const MAX_PAGES: usize = 20;

/// A model of a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name, as a request names it.
    pub name: String,
    /// Its window, where the list says so.
    pub context_window: Option<u32>,
}

/// Asks a provider for its own list of models, within its time-outs; in the order of their names.
pub async fn list_models(provider: &ProviderConfig) -> Result<Vec<Listed>, ModelFailure> {
    let provider = &Provider::new(provider.clone());
    provider.check()?;
    let times = Times::new(&provider.config);
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let body = page(provider, after.as_deref(), &times).await.map_err(|failure| provider.clean(failure))?;
        let page = entries(&body).ok_or_else(|| error::malformed("something else than a list of models"))?;
        all.extend(page.iter().filter_map(listed));
        let more = body.get("has_more").and_then(Value::as_bool) == Some(true);
        let last = body.get("last_id").and_then(Value::as_str).map(str::to_owned);
        match last.filter(|last| more && after.as_ref() != Some(last)) {
            Some(last) => after = Some(last),
            None => break,
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all.dedup_by(|one, other| one.name == other.name);
    Ok(all)
}

async fn page(provider: &Provider, after: Option<&str>, times: &Times) -> Result<Value, ModelFailure> {
    let mut url = provider.list_url()?;
    if provider.lists_in_pages() {
        url.query_pairs_mut().append_pair("limit", PAGE).extend_pairs(after.map(|after| ("after_id", after)));
    }
    let response = match timeout_at(times.first_byte(), provider.get(url)?.send()).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(provider.not_sent(error)),
        Err(_) => return Err(times.failure(Waited::FirstByte)),
    };
    let status = response.status().as_u16();
    let content_type = header(&response, CONTENT_TYPE);
    let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
    let wait_ms = waits::of_headers(response.headers(), SystemClock.now_ms());
    let body = read(response, times).await?;
    let refusal = Refusal { status, content_type: &content_type, location: location.as_deref(), body: &body };
    if !(200..300).contains(&status) {
        let failure = error::of_status(status, &body, wait_ms);
        return Err(provider.explain_list(&refusal, failure));
    }
    serde_json::from_str(&body).map_err(|_| {
        let failure = error::malformed("something else than a list of models");
        provider.explain_list(&refusal, failure)
    })
}

async fn read(mut response: Response, times: &Times) -> Result<String, ModelFailure> {
    let mut body = Vec::new();
    loop {
        match timeout_at(times.idle(), response.chunk()).await {
            Ok(Ok(Some(bytes))) if body.len() + bytes.len() <= MAX_LIST_BYTES => body.extend_from_slice(&bytes),
            Ok(Ok(Some(_))) => return Err(error::malformed("a list that is too long")),
            Ok(Ok(None)) => return Ok(String::from_utf8_lossy(&body).into_owned()),
            Ok(Err(error)) => return Err(super::client::broken(error, "the connection broke")),
            Err(_) => return Err(times.failure(Waited::Idle)),
        }
    }
}

/// The entries of a list: below `data`, below `models`, or the document itself.
fn entries(body: &Value) -> Option<&Vec<Value>> {
    body.get("data").or_else(|| body.get("models")).unwrap_or(body).as_array()
}

fn listed(entry: &Value) -> Option<Listed> {
    let name = entry.as_str().or_else(|| entry.get("id")?.as_str()).or_else(|| entry.get("name")?.as_str())?;
    let window = ["context_length", "max_model_len", "max_input_tokens", "context_window"];
    let window = window.iter().find_map(|key| entry.get(key)?.as_u64());
    let window = window.or_else(|| entry.get("meta")?.get("n_ctx")?.as_u64());
    Some(Listed {
        name: name.to_owned(),
        context_window: window.and_then(|window| u32::try_from(window).ok()).filter(|window| *window > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_of_every_shape_are_read() {
        let check = |body: Value, expect: &[(&str, Option<u32>)]| {
            let found: Vec<_> = entries(&body).expect("a list").iter().filter_map(listed).collect();
            let found: Vec<_> = found.iter().map(|model| (model.name.as_str(), model.context_window)).collect();
            assert_eq!(found, expect, "{body}");
        };
        check(json!({"object": "list", "data": [{"id": "a", "object": "model"}]}), &[("a", None)]);
        check(json!({"data": [{"type": "model", "id": "c", "max_input_tokens": 200_000}]}), &[("c", Some(200_000))]);
        check(json!({"data": [{"id": "v", "max_model_len": 4096}]}), &[("v", Some(4096))]);
        check(json!({"data": [{"id": "r", "context_length": 0}]}), &[("r", None)]);
        check(json!({"data": [{"id": "l", "meta": {"n_ctx": 512}}]}), &[("l", Some(512))]);
        check(json!({"models": [{"name": "m"}]}), &[("m", None)]);
        check(json!([{"id": "t"}, "u", 3]), &[("t", None), ("u", None)]);
        assert_eq!(entries(&json!({"error": "x"})), None);
    }
}
