//! A plain launcher on CUDA's driver, for checks: everything on one stream, each copy waited for. The engine's own is in the backend.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fs,
    path::{Path, PathBuf},
    ptr,
};

use kernels::{
    launch::{Launch, LaunchError, Launcher, Memory},
    source::Kernel,
};
use libloading::Library;

type Handle = *mut c_void;

/// Dynamic shared memory that every function may have without asking.
const FREE_SHARED_BYTES: usize = 48 << 10;
// Of cuda.h.
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;

/// Declares the driver's functions and opens them all.
macro_rules! driver {
    ($($field:ident: $symbol:literal ($($argument:ty),*);)*) => {
        #[derive(Debug)]
        struct Driver {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            // Last, so that the functions are gone before it is closed.
            _library: Library,
        }

        impl Driver {
            fn open() -> Result<Driver, LaunchError> {
                // SAFETY: the driver's initialisers have no precondition.
                let library = unsafe { Library::new("libcuda.so.1") }
                    .map_err(|error| LaunchError(format!("no CUDA driver: {error}")))?;
                Ok(Driver {
                    $($field: {
                        // SAFETY: the type is that of cuda.h for this symbol.
                        let function = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *function.map_err(|_| LaunchError(concat!("the driver has no ", $symbol).to_owned()))?
                    },)*
                    _library: library,
                })
            }
        }
    };
}
driver! {
    init: "cuInit" (c_uint);
    error_name: "cuGetErrorName" (c_int, *mut *const c_char);
    device: "cuDeviceGet" (*mut c_int, c_int);
    device_name: "cuDeviceGetName" (*mut c_char, c_int, c_int);
    attribute: "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    retain: "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    set_current: "cuCtxSetCurrent" (Handle);
    wait: "cuCtxSynchronize" ();
    load: "cuModuleLoadData" (*mut Handle, *const c_void);
    function: "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    set_attribute: "cuFuncSetAttribute" (Handle, c_int, c_int);
    alloc: "cuMemAlloc_v2" (*mut u64, usize);
    free: "cuMemFree_v2" (u64);
    upload: "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    download: "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    fill: "cuMemsetD8_v2" (u64, u8, usize);
    launch: "cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
}

impl Driver {
    fn ok(&self, call: &str, code: c_int) -> Result<(), LaunchError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = ptr::null();
        // SAFETY: the call writes one pointer: null, or to a constant string.
        unsafe { (self.error_name)(code, &mut name) };
        let name = if name.is_null() {
            code.to_string()
        } else {
            // SAFETY: not null, so it ends with a zero.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        };
        Err(LaunchError(format!("{call}: {name}")))
    }
}

/// A GPU and the machine code in a folder.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) arch: String,
    driver: Driver,
    folder: PathBuf,
    modules: HashMap<&'static str, Handle>,
    functions: HashMap<Kernel, Handle>,
}

/// The name of a source's machine code.
pub(crate) fn file(source: &str, arch: &str) -> String {
    format!("{source}.{arch}.cubin")
}

impl Gpu {
    pub(crate) fn open(folder: &Path, number: c_int) -> Result<Gpu, LaunchError> {
        let driver = Driver::open()?;
        let (mut device, mut context) = (0, ptr::null_mut());
        let (mut major, mut minor) = (0, 0);
        let mut name = [0u8; 128];
        // SAFETY: each call writes one value of the type its pointer says, the name at most as long as it is told; the context lives until the process ends.
        unsafe {
            driver.ok("cuInit", (driver.init)(0))?;
            driver.ok("cuDeviceGet", (driver.device)(&mut device, number))?;
            driver.ok(
                "cuDeviceGetName",
                (driver.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device),
            )?;
            for (value, attribute) in [
                (&mut major, COMPUTE_CAPABILITY_MAJOR),
                (&mut minor, COMPUTE_CAPABILITY_MINOR),
            ] {
                let code = (driver.attribute)(value, attribute, device);
                driver.ok("cuDeviceGetAttribute", code)?;
            }
            driver.ok(
                "cuDevicePrimaryCtxRetain",
                (driver.retain)(&mut context, device),
            )?;
            driver.ok("cuCtxSetCurrent", (driver.set_current)(context))?;
        }
        let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy);
        // Code for a family's own instructions runs on that member only.
        let own = if major >= 9 { "a" } else { "" };
        Ok(Gpu {
            name: name.unwrap_or_default().into_owned(),
            arch: format!("sm_{major}{minor}{own}"),
            driver,
            folder: folder.to_owned(),
            modules: HashMap::new(),
            functions: HashMap::new(),
        })
    }

    fn module(&mut self, source: &'static str) -> Result<Handle, LaunchError> {
        if let Some(module) = self.modules.get(source) {
            return Ok(*module);
        }
        let path = self.folder.join(file(source, &self.arch));
        let image =
            fs::read(&path).map_err(|error| LaunchError(format!("{}: {error}", path.display())))?;
        let mut module = ptr::null_mut();
        // SAFETY: the file was made by `compile`: whole machine code, which the driver copies.
        let code = unsafe { (self.driver.load)(&mut module, image.as_ptr().cast()) };
        self.driver.ok("cuModuleLoadData", code)?;
        self.modules.insert(source, module);
        Ok(module)
    }

    fn function(&mut self, kernel: Kernel) -> Result<Handle, LaunchError> {
        if let Some(function) = self.functions.get(&kernel) {
            return Ok(*function);
        }
        let module = self.module(kernel.source())?;
        let name = CString::new(kernel.name()).map_err(|error| LaunchError(error.to_string()))?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded and the name ends with a zero.
        let code = unsafe { (self.driver.function)(&mut function, module, name.as_ptr()) };
        self.driver.ok(&kernel.name(), code)?;
        self.functions.insert(kernel, function);
        Ok(function)
    }
}

impl Launcher for Gpu {
    fn alloc(&mut self, bytes: usize) -> Result<Memory, LaunchError> {
        let (mut address, bytes) = (0, bytes.max(16));
        // SAFETY: writes one address.
        let code = unsafe { (self.driver.alloc)(&mut address, bytes) };
        self.driver.ok("cuMemAlloc", code)?;
        Ok(Memory::new(address, bytes))
    }

    fn free(&mut self, memory: Memory) -> Result<(), LaunchError> {
        // SAFETY: the driver refuses what it did not give; it waits for what still uses the memory.
        let code = unsafe { (self.driver.free)(memory.address()) };
        self.driver.ok("cuMemFree", code)
    }

    fn upload(&mut self, to: Memory, bytes: &[u8]) -> Result<(), LaunchError> {
        assert!(
            bytes.len() <= to.bytes(),
            "{} bytes into {to:?}",
            bytes.len()
        );
        // SAFETY: both ranges are as long as the copy.
        let code =
            unsafe { (self.driver.upload)(to.address(), bytes.as_ptr().cast(), bytes.len()) };
        self.driver.ok("cuMemcpyHtoD", code)
    }

    fn download(&mut self, from: Memory, bytes: &mut [u8]) -> Result<(), LaunchError> {
        assert!(
            bytes.len() <= from.bytes(),
            "{} bytes of {from:?}",
            bytes.len()
        );
        // SAFETY: no arguments.
        let code = unsafe { (self.driver.wait)() };
        self.driver.ok("a kernel", code)?;
        // SAFETY: both ranges are as long as the copy.
        let code = unsafe {
            (self.driver.download)(bytes.as_mut_ptr().cast(), from.address(), bytes.len())
        };
        self.driver.ok("cuMemcpyDtoH", code)
    }

    fn clear(&mut self, memory: Memory) -> Result<(), LaunchError> {
        // SAFETY: all of an allocation, or of a part of one.
        let code = unsafe { (self.driver.fill)(memory.address(), 0, memory.bytes()) };
        self.driver.ok("cuMemsetD8", code)
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), LaunchError> {
        let function = self.function(launch.kernel)?;
        if launch.shared_bytes > FREE_SHARED_BYTES {
            let bytes = launch.shared_bytes as c_int;
            // SAFETY: the function is loaded.
            let code = unsafe {
                (self.driver.set_attribute)(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)
            };
            self.driver.ok("cuFuncSetAttribute", code)?;
        }
        let [x, y, z] = launch.grid;
        let mut params = [launch.params().as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the kernel has one parameter, a struct as long as the launch's: its size is asserted on both sides. What it points to was checked by `ops`.
        let code = unsafe {
            (self.driver.launch)(
                function,
                x,
                y,
                z,
                launch.threads,
                1,
                1,
                launch.shared_bytes as c_uint,
                ptr::null_mut(),
                params.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.driver.ok(&launch.kernel.name(), code)
    }
}
