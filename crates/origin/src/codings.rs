//! The content codings gzip, br and zstd, decoded piece by piece.

use std::io::{self, ErrorKind, Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use everfresh_core::render::RenderFailure;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

use crate::decode::Output;
use crate::error::OriginError;

/// Decoded at a time.
const PIECE: usize = 16 * 1024;

/// What a decoder of zstd content must support at least, and may refuse beyond (RFC 9659).
const MAX_ZSTD_WINDOW: u64 = 8 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Decodes the whole of `coded`: bytes that are missing or left over are a failure.
    pub(crate) fn decode(self, coded: &[u8], output: &mut Output) -> Result<(), RenderFailure> {
        match self {
            Self::Gzip => self.copy(MultiGzDecoder::new(coded), output),
            Self::Brotli => self.decode_brotli(coded, output),
            Self::Zstd => self.decode_zstd(coded, output),
        }
    }

    fn copy(self, mut decoded: impl Read, output: &mut Output) -> Result<(), RenderFailure> {
        let mut piece = [0; PIECE];
        loop {
            match decoded.read(&mut piece).map_err(|error| self.failed(error))? {
                0 => return Ok(()),
                length => output.push(&piece[..length])?,
            }
        }
    }

    fn decode_brotli(self, coded: &[u8], output: &mut Output) -> Result<(), RenderFailure> {
        let alloc = StandardAlloc::default;
        // Without the large windows, which are no part of the content coding.
        let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
        let mut piece = [0; PIECE];
        let (mut left, mut read, mut total) = (coded.len(), 0, 0);
        loop {
            let (mut free, mut written) = (PIECE, 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut read,
                coded,
                &mut free,
                &mut written,
                &mut piece,
                &mut total,
                &mut state,
            );
            output.push(&piece[..written])?;
            let problem = match result {
                BrotliResult::NeedsMoreOutput => continue,
                BrotliResult::ResultSuccess if left == 0 => return Ok(()),
                BrotliResult::ResultSuccess => io::Error::new(ErrorKind::InvalidData, "bytes after its end"),
                BrotliResult::NeedsMoreInput => ErrorKind::UnexpectedEof.into(),
                BrotliResult::ResultFailure => ErrorKind::InvalidData.into(),
            };
            return Err(self.failed(problem));
        }
    }

    /// One frame or several.
    fn decode_zstd(self, mut coded: &[u8], output: &mut Output) -> Result<(), RenderFailure> {
        while !coded.is_empty() {
            match StreamingDecoder::new_with_max_window_size(&mut coded, MAX_ZSTD_WINDOW) {
                Ok(frame) => self.copy(frame, output)?,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let rest = coded.get(length as usize..);
                    coded = rest.ok_or_else(|| self.failed(ErrorKind::UnexpectedEof.into()))?;
                }
                Err(error) => return Err(self.failed(io::Error::other(error))),
            }
        }
        Ok(())
    }

    fn failed(self, source: io::Error) -> RenderFailure {
        OriginError::Coding { coding: self, source }.into()
    }
}
