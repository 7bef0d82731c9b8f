//! The bundled Llama engine. Empty until it lands; see README, section "Status".
