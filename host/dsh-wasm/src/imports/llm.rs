//! `dsh:llm`: calling a model outside of the loop.

use crate::bindings::dsh::llm::{llm_types, model};
use crate::clock::Wait;
use crate::convert;
use crate::grants::Grant;
use crate::store::GuestState;
use crate::words::{Failure, Seam};

impl llm_types::Host for GuestState {}

impl model::Host for GuestState {
    async fn generate(
        &mut self,
        request: model::GenerateRequest,
    ) -> wasmtime::Result<Result<model::GenerateResponse, llm_types::Failure>> {
        self.enter()?;
        self.takes(&request);
        let session = match self.granted(Grant::Llm).await {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        };
        if matches!(self.call.seam, Seam::Observer | Seam::Flush | Seam::Configure | Seam::Section) {
            let message = format!("a model cannot be called in `{}`", self.call.seam);
            return Ok(Err(convert::failure(Failure::new("not-available", message))));
        }
        self.check_lists(&request)?;
        let request = match convert::generate_in(request) {
            Ok(request) => request,
            Err(ill) => return Ok(Err(convert::invalid(&ill))),
        };
        self.outside_call()?;
        let response = Self::waiting(&self.clock, Wait::Excluded, session.generate(request)).await;
        let response = response.map(|response| convert::generated(&response)).map_err(convert::failure);
        Ok(self.gives(response))
    }
}
