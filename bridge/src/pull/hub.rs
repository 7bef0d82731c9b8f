//! Files of repositories on Hugging Face, or on a mirror that speaks like it.
//!
//! ```text
//! GET {endpoint}/{owner}/{repo}/resolve/{revision}/{file}      authorization: Bearer … (never to another host)
//! 302  location: https://cdn…   x-linked-etag: "<sha256>"   x-linked-size: 98362432
//! GET  https://cdn…             range: bytes=1048576-
//! 206  content-range: bytes 1048576-98362431/98362432
//! ```
//! The checksum is known before the first byte comes, so a part of an earlier try is gone on with only when it is of the
//! same file.

use std::{io, path::PathBuf, time::Duration};

use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use tracing::Level;
use url::Url;

use super::{
    HubFile, Report, Step,
    digest::{self, Digest},
    error::Error,
    partial::Partial,
    store::{self, Slot},
};
use crate::{
    config::{Places, Secret},
    telemetry,
    upstream::{client, probe::root_cause},
};

const ENDPOINT: &str = "https://huggingface.co";
const CONNECT: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: usize = 10;
/// Tries in a row that bring nothing new.
const TRIES: u32 = 5;

/// How long is waited for a server.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The longest silence within an answer.
    idle: Duration,
    /// Before the second try; doubled before each further one.
    pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            pause: Duration::from_millis(200),
        }
    }
}

/// Fetches the file, and all other parts of a model that is split. The first one is the model's name.
pub(super) async fn fetch(
    file: &HubFile,
    places: &Places,
    report: &Report,
) -> Result<PathBuf, Error> {
    fetch_patiently(file, places, report, Patience::default()).await
}

async fn fetch_patiently(
    file: &HubFile,
    places: &Places,
    report: &Report,
    patience: Patience,
) -> Result<PathBuf, Error> {
    let parts = file.parts()?;
    let mut paths = Vec::new();
    for part in &parts {
        let path = store::place(places, &part.place())?;
        if let Some(slot) = Slot::claim(&path).await? {
            let source = Source::new(part, places, patience)?;
            source.fetch(slot, report).await?;
        }
        paths.push(path);
    }
    Ok(paths.swap_remove(0))
}

/// One file and how to ask for it.
struct Source<'a> {
    url: Url,
    token: Option<&'a Secret>,
    given: Option<Digest>,
    name: String,
    patience: Patience,
}

/// An answer with a body, and what was learnt on the way to it.
struct Answer {
    response: Response,
    sha256: Option<Digest>,
    /// Of the whole file.
    size: Option<u64>,
}

/// Why a try brought no whole file.
enum Try {
    /// Another one may.
    Again(String),
    Fatal(Error),
}

impl From<Error> for Try {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

impl<'a> Source<'a> {
    fn new(file: &HubFile, places: &'a Places, patience: Patience) -> Result<Self, Error> {
        let endpoint = places.hugging_face.as_deref().unwrap_or(ENDPOINT);
        let wrong = |problem: &str| Error::Fetch {
            url: endpoint.to_owned(),
            problem: format!("HF_ENDPOINT {problem}"),
        };
        let mut url = Url::parse(endpoint).map_err(|_| wrong("is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong("must begin with http:// or https://"));
        }
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .extend([&file.owner, &file.repository])
                .push("resolve")
                .push(&file.revision)
                .extend(file.file.split('/'));
        }
        let name = file.file.rsplit('/').next().unwrap_or(&file.file);
        Ok(Self {
            url,
            token: places.hugging_face_token.as_ref(),
            given: file.sha256,
            name: name.to_owned(),
            patience,
        })
    }

    async fn fetch(&self, slot: Slot, report: &Report) -> Result<(), Error> {
        let mut partial: Option<Partial> = None;
        let mut pause = self.patience.pause;
        let mut idle_tries = 0;
        loop {
            let before = partial.as_ref().map_or(0, |partial| partial.length);
            let (problem, total) = match self.go_on(&slot, &mut partial, report).await {
                Ok(sha256) => return self.finish(slot, partial, sha256),
                Err((Try::Fatal(error), _)) => return Err(error),
                Err((Try::Again(problem), total)) => (problem, total),
            };
            let got = partial.as_ref().map_or(0, |partial| partial.length);
            if got > before {
                (idle_tries, pause) = (0, self.patience.pause);
            }
            idle_tries += 1;
            if idle_tries >= TRIES {
                return Err(match total {
                    Some(total) if got > 0 => Error::Cut {
                        what: self.name.clone(),
                        tries: idle_tries,
                        got,
                        total,
                    },
                    _ => self.problem(problem),
                });
            }
            tracing::info!(file = self.name, got, "trying again: {problem}");
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// One try. The size comes with a failure too, where it was learnt.
    async fn go_on(
        &self,
        slot: &Slot,
        partial: &mut Option<Partial>,
        report: &Report,
    ) -> Result<Option<Digest>, (Try, Option<u64>)> {
        let mut answer = self
            .ask(slot, partial)
            .await
            .map_err(|fault| (fault, None))?;
        let size = answer.size;
        let read = self.read(slot, partial, &mut answer, report).await;
        match read {
            Ok(()) => Ok(answer.sha256),
            Err(fault) => Err((fault, size)),
        }
    }

    /// Follows redirects to the file itself. The range is asked for as soon as it is known of which file.
    async fn ask(&self, slot: &Slot, partial: &mut Option<Partial>) -> Result<Answer, Try> {
        let mut url = self.url.clone();
        let (mut sha256, mut size) = (self.given, None);
        let mut asked = 0;
        loop {
            let from = partial.as_ref().map_or(0, |partial| partial.length);
            let response = self.get(&url, from).await?;
            asked += 1;
            let told = told(response.headers());
            match (told.0, self.given) {
                (Some(told), Some(given)) if told != given => {
                    return Err(Try::Fatal(Error::Checksum {
                        what: self.name.clone(),
                        expected: digest::to_hex(&given),
                        got: digest::to_hex(&told),
                    }));
                }
                _ => {}
            }
            sha256 = sha256.or(told.0);
            size = size.or(told.1);
            if partial.is_none() {
                let opened = Partial::open(slot, sha256.as_ref());
                *partial = Some(opened.map_err(|error| slot.write_error(error))?);
            }
            let have = partial.as_ref().map_or(0, |partial| partial.length);
            let status = response.status();
            if asked > MOST_REDIRECTS {
                let problem = format!("more than {MOST_REDIRECTS} redirects");
                return Err(self.fatal(problem));
            }
            if status.is_redirection() {
                url = self.redirected(&url, response.headers())?;
                continue;
            }
            if status == StatusCode::OK && have > from {
                // Only now it is known that a part of this file is here.
                continue;
            }
            return match status {
                StatusCode::OK => {
                    restart(partial).map_err(|error| slot.write_error(error))?;
                    let length = response.content_length();
                    Ok(Answer {
                        response,
                        sha256,
                        size: size.or(length),
                    })
                }
                StatusCode::PARTIAL_CONTENT if begins_at(response.headers(), have) => {
                    let rest = response.content_length();
                    Ok(Answer {
                        response,
                        sha256,
                        size: size.or(rest.map(|rest| have + rest)),
                    })
                }
                StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                    restart(partial).map_err(|error| slot.write_error(error))?;
                    Err(Try::Again(format!(
                        "the server answered {status} to a range"
                    )))
                }
                status => Err(self.refused(status)),
            };
        }
    }

    async fn get(&self, url: &Url, from: u64) -> Result<Response, Try> {
        let client = client::build(url, CONNECT).map_err(|error| self.fatal(error.to_string()))?;
        let mut request = client.get(url.clone());
        if let Some(token) = self.token
            && url.origin() == self.url.origin()
        {
            request = request.bearer_auth(token.expose());
        }
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        match tokio::time::timeout(self.patience.idle, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Try::Again(format!(
                "cannot be reached: {}",
                root_cause(&error)
            ))),
            Err(_) => Err(Try::Again(format!(
                "no answer in {} s",
                self.patience.idle.as_secs()
            ))),
        }
    }

    fn redirected(&self, url: &Url, headers: &HeaderMap) -> Result<Url, Try> {
        let location = headers
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|location| url.join(location).ok())
            .filter(|next| matches!(next.scheme(), "http" | "https"));
        match location {
            Some(next) if url.scheme() == "https" && next.scheme() == "http" => {
                Err(self.fatal(format!("a redirect from https to {next}")))
            }
            Some(next) => Ok(next),
            None => Err(self.fatal("a redirect to nowhere".to_owned())),
        }
    }

    async fn read(
        &self,
        slot: &Slot,
        partial: &mut Option<Partial>,
        answer: &mut Answer,
        report: &Report,
    ) -> Result<(), Try> {
        let Some(partial) = partial else {
            return Err(self.fatal("nothing to write to".to_owned()));
        };
        let total = answer.size;
        if let Some(total) = total {
            slot.check_space(total.saturating_sub(partial.length))?;
        }
        loop {
            report(&Step {
                what: self.name.clone(),
                done: partial.length,
                total,
            });
            let chunk =
                match tokio::time::timeout(self.patience.idle, answer.response.chunk()).await {
                    Ok(Ok(Some(chunk))) => chunk,
                    Ok(Ok(None)) => break,
                    Ok(Err(error)) => return Err(Try::Again(root_cause(&error))),
                    Err(_) => {
                        return Err(Try::Again(format!(
                            "silent for {} s",
                            self.patience.idle.as_secs()
                        )));
                    }
                };
            partial
                .push(&chunk)
                .map_err(|error| slot.write_error(error))?;
            if total.is_some_and(|total| partial.length > total) {
                let problem = format!("more than the {} bytes it has", total.unwrap_or(0));
                return Err(self.fatal(problem));
            }
        }
        match total {
            Some(total) if partial.length < total => Err(Try::Again(format!(
                "the answer ended after {} of {total} bytes",
                partial.length
            ))),
            _ => Ok(()),
        }
    }

    fn finish(
        &self,
        slot: Slot,
        partial: Option<Partial>,
        sha256: Option<Digest>,
    ) -> Result<(), Error> {
        let Some(partial) = partial else {
            return Err(self.problem("nothing was written".to_owned()));
        };
        let got = partial.hasher.finish();
        match sha256 {
            Some(expected) if expected != got => {
                let _ = std::fs::remove_file(&partial.path);
                return Err(Error::Checksum {
                    what: self.name.clone(),
                    expected: digest::to_hex(&expected),
                    got: digest::to_hex(&got),
                });
            }
            Some(_) => {}
            None => {
                let line = format!(
                    "{}: the server told no checksum, so none was compared; it is sha256 {}",
                    self.name,
                    digest::to_hex(&got)
                );
                telemetry::tell(Level::WARN, &line);
            }
        }
        slot.keep(&partial.path)?;
        Ok(())
    }

    fn refused(&self, status: StatusCode) -> Try {
        match status {
            StatusCode::NOT_FOUND => {
                self.fatal("404: there is no such repository, revision or file".to_owned())
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.fatal(format!(
                "{}: the repository asks for a login; accept its licence on its page and put a token into HF_TOKEN",
                status.as_u16()
            )),
            StatusCode::TOO_MANY_REQUESTS => Try::Again(format!("the server answered {status}")),
            status if status.is_server_error() => {
                Try::Again(format!("the server answered {status}"))
            }
            status => self.fatal(format!("the server answered {status}")),
        }
    }

    fn fatal(&self, problem: String) -> Try {
        Try::Fatal(self.problem(problem))
    }

    fn problem(&self, problem: String) -> Error {
        Error::Fetch {
            url: self.url.to_string(),
            problem,
        }
    }
}

fn restart(partial: &mut Option<Partial>) -> io::Result<()> {
    partial.as_mut().map_or(Ok(()), Partial::restart)
}

/// Checksum and size of the file behind the link.
fn told(headers: &HeaderMap) -> (Option<Digest>, Option<u64>) {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let sha256 = text("x-linked-etag")
        .map(|etag| etag.trim_start_matches("W/").trim_matches('"'))
        .and_then(digest::from_hex);
    let size = text("x-linked-size").and_then(|size| size.parse().ok());
    (sha256, size)
}

fn begins_at(headers: &HeaderMap, from: u64) -> bool {
    headers
        .get(header::CONTENT_RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("bytes "))
        .and_then(|range| range.split('-').next()?.trim().parse::<u64>().ok())
        == Some(from)
}

#[cfg(test)]
mod tests;
