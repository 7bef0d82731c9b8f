mod batch;
mod cancel;
mod drafts;
mod fairness;
mod grammar;
mod limits;
mod warm;
