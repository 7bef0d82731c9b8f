//! Compiles a source for an architecture with NVRTC, the compiler library of CUDA. It is opened when it is used; neither a CUDA toolkit nor a GPU is needed,
//! only the library and the builtins beside it (PyPI's `nvidia-cuda-nvrtc-cu12` is enough).

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::source::{HEADERS, Source};

/// Why nothing was compiled.
#[derive(Debug, thiserror::Error)]
pub enum NvrtcError {
    #[error("cannot open {path}: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error("NVRTC has no function {0}")]
    Missing(&'static str),
    #[error("NVRTC: {call} gave {code}")]
    Call { call: &'static str, code: c_int },
    #[error("{source_name} for {arch}:\n{log}")]
    Compile {
        source_name: &'static str,
        arch: String,
        log: String,
    },
}

/// A compiled source.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Machine code for `sm_*`, PTX text for `compute_*`.
    pub image: Vec<u8>,
    /// What the assembler says: registers, shared memory and spills of each kernel. Empty for PTX.
    pub log: String,
}

/// The open library.
#[derive(Debug)]
pub struct Nvrtc {
    library: Library,
    _builtins: Vec<Library>,
}

type Program = *mut c_void;

impl Nvrtc {
    /// Opens `libnvrtc.so.*` at `path`.
    pub fn open(path: &Path) -> Result<Nvrtc, NvrtcError> {
        // Some releases do not look for their builtins beside themselves, so those come first.
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut builtins = Vec::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("libnvrtc-builtins.so")
            {
                builtins.push(open(&entry.path())?);
            }
        }
        Ok(Nvrtc {
            library: open(path)?,
            _builtins: builtins,
        })
    }

    /// `(12, 8)`
    pub fn version(&self) -> Result<(i32, i32), NvrtcError> {
        let (mut major, mut minor) = (0, 0);
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        let call = self.function::<Version>("nvrtcVersion", c"nvrtcVersion")?;
        // SAFETY: nvrtcVersion writes two integers.
        check("nvrtcVersion", unsafe { call(&mut major, &mut minor) })?;
        Ok((major, minor))
    }

    /// Compiles for `sm_90a` (machine code) or `compute_80` (PTX).
    pub fn compile(&self, source: Source, arch: &str) -> Result<Compiled, NvrtcError> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
        let create = self.function::<Create>("nvrtcCreateProgram", c"nvrtcCreateProgram")?;
        let compile = self.function::<Compile>("nvrtcCompileProgram", c"nvrtcCompileProgram")?;
        let destroy = self.function::<Destroy>("nvrtcDestroyProgram", c"nvrtcDestroyProgram")?;

        let text = c_string(source.text);
        let name = c_string(&format!("{}.cu", source.name));
        let headers = HEADERS.map(|header| (c_string(header.text), c_string(header.name)));
        let header_texts = headers.each_ref().map(|(text, _)| text.as_ptr());
        let header_names = headers.each_ref().map(|(_, name)| name.as_ptr());
        let options = options(arch).map(|option| c_string(&option));
        let option_pointers = options.each_ref().map(|option| option.as_ptr());

        let mut program: Program = std::ptr::null_mut();
        // SAFETY: all strings end with a zero and live until the program is destroyed; the counts are those of the arrays.
        check("nvrtcCreateProgram", unsafe {
            create(
                &mut program,
                text.as_ptr(),
                name.as_ptr(),
                header_texts.len() as c_int,
                header_texts.as_ptr(),
                header_names.as_ptr(),
            )
        })?;
        // SAFETY: the program was just created, the options live until the call returns.
        let code = unsafe {
            compile(
                program,
                option_pointers.len() as c_int,
                option_pointers.as_ptr(),
            )
        };
        let log = self.bytes(
            program,
            ("nvrtcGetProgramLogSize", c"nvrtcGetProgramLogSize"),
            ("nvrtcGetProgramLog", c"nvrtcGetProgramLog"),
        );
        let image = if code != 0 {
            Ok(Vec::new())
        } else if arch.starts_with("sm_") {
            self.bytes(
                program,
                ("nvrtcGetCUBINSize", c"nvrtcGetCUBINSize"),
                ("nvrtcGetCUBIN", c"nvrtcGetCUBIN"),
            )
        } else {
            self.bytes(
                program,
                ("nvrtcGetPTXSize", c"nvrtcGetPTXSize"),
                ("nvrtcGetPTX", c"nvrtcGetPTX"),
            )
        };
        // SAFETY: created above, not used after this.
        unsafe { destroy(&mut program) };
        let log = CStr::from_bytes_until_nul(&log?)
            .map(|log| log.to_string_lossy().into_owned())
            .unwrap_or_default();
        if code != 0 {
            return Err(NvrtcError::Compile {
                source_name: source.name,
                arch: arch.to_owned(),
                log,
            });
        }
        Ok(Compiled { image: image?, log })
    }

    /// Asks for a size and then for that many bytes.
    fn bytes(
        &self,
        program: Program,
        (size_name, size_symbol): (&'static str, &CStr),
        (name, symbol): (&'static str, &CStr),
    ) -> Result<Vec<u8>, NvrtcError> {
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        let size_of = self.function::<Size>(size_name, size_symbol)?;
        let get = self.function::<Get>(name, symbol)?;
        let mut size = 0;
        // SAFETY: the program is alive; the call writes one size.
        check(size_name, unsafe { size_of(program, &mut size) })?;
        let mut bytes = vec![0u8; size.max(1)];
        // SAFETY: the buffer is as long as the library said.
        check(name, unsafe { get(program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn function<F: Copy>(&self, name: &'static str, symbol: &CStr) -> Result<F, NvrtcError> {
        // SAFETY: every caller gives the type that nvrtc.h declares for the name; the function lives as long as the library, that is, as long as self.
        unsafe { self.library.get::<F>(symbol.to_bytes_with_nul()) }
            .map(|function| *function)
            .map_err(|_| NvrtcError::Missing(name))
    }
}

/// Of every compilation: part of what a compiled kernel is.
///
/// No contraction of multiplications and additions: kernels for different numbers of tokens must round alike (see `cuda/device.cuh`).
pub fn options(arch: &str) -> [String; 4] {
    [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_owned(),
        "--fmad=false".to_owned(),
        "--ptxas-options=-v".to_owned(),
    ]
}

fn open(path: &Path) -> Result<Library, NvrtcError> {
    // SAFETY: opening runs the library's initialisers; NVRTC's have no precondition.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| NvrtcError::Open {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn check(call: &'static str, code: c_int) -> Result<(), NvrtcError> {
    if code == 0 {
        Ok(())
    } else {
        Err(NvrtcError::Call { call, code })
    }
}

fn c_string(text: &str) -> CString {
    // Sources and options hold no zero; a file that did would be cut there and not compile.
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
