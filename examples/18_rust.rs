// cc -c -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o insitubatch.o && rustc -O --edition 2021 examples/18_rust.rs -o 18_rust -C link-args='insitubatch.o -luring -lcurl -llz4 -lzstd -lgcc'
//! Reads one epoch of the observed winds in Rust, in the order of training, and prints mean and
//! standard deviation of what it saw; then the same epoch again from a state in its middle. The
//! configuration is JSON; Loader, Iter and Batch below close what they hold, and borrow from each
//! other, so that no array outlives its batch. Needs Rust 1.63, as Debian's rustc. Run: ./18_rust [ARCHIVE]
#[path = "bindings/insitubatch.rs"]
mod insitubatch;
use insitubatch::*;
use std::ffi::CString;
use std::marker::PhantomData;
use std::ptr;

struct Loader(*mut insitu_loader);
struct Iter<'a>(*mut insitu_iter, PhantomData<&'a Loader>);
struct Batch(*mut insitu_batch);

impl Loader {
    fn open(json: &str) -> Result<Loader, String> {
        let (mut out, mut err) = (ptr::null_mut(), insitu_error::default());
        let json = CString::new(json).map_err(|e| e.to_string())?;
        match unsafe { insitu_loader_open_json(json.as_ptr(), ptr::null(), &mut out, &mut err) } {
            INSITU_OK => Ok(Loader(out)),
            _ => Err(err.text()),
        }
    }

    fn iter(&self, json: &str) -> Result<Iter<'_>, String> {
        let (mut out, mut err) = (ptr::null_mut(), insitu_error::default());
        let json = CString::new(json).map_err(|e| e.to_string())?;
        match unsafe { insitu_iter_open_json(self.0, json.as_ptr(), ptr::null(), &mut out, &mut err) } {
            INSITU_OK => Ok(Iter(out, PhantomData)),
            _ => Err(err.text()),
        }
    }
}

impl Iter<'_> {
    /// None: the epoch is over.
    fn next(&mut self) -> Result<Option<Batch>, String> {
        let (mut out, mut err) = (ptr::null_mut(), insitu_error::default());
        match unsafe { insitu_iter_next(self.0, INSITU_FOREVER as i64, &mut out, &mut err) } {
            INSITU_OK => Ok(Some(Batch(out))),
            INSITU_END => Ok(None),
            _ => Err(err.text()),
        }
    }

    fn restore(&mut self, state: &insitu_state) -> Result<(), String> {
        let mut err = insitu_error::default();
        match unsafe { insitu_iter_restore(self.0, state, &mut err) } {
            INSITU_OK => Ok(()),
            _ => Err(err.text()),
        }
    }
}

impl Batch {
    fn info(&self) -> &insitu_batch {
        unsafe { &*self.0 }
    }

    /// The elements of an array of floats in host memory, and its shape.
    fn floats(&self, name: &str) -> Option<(&[f32], &[i64])> {
        let name = CString::new(name).ok()?;
        let array = unsafe { insitu_batch_find(self.0, name.as_ptr()).as_ref()? };
        if array.dtype != INSITU_F32 || array.place == INSITU_DEVICE {
            return None;
        }
        let shape = unsafe { std::slice::from_raw_parts(array.shape, array.ndim as usize) };
        let n = shape.iter().product::<i64>() as usize;
        Some((unsafe { std::slice::from_raw_parts(array.data as *const f32, n) }, shape))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        unsafe { insitu_loader_close(&mut self.0) }
    }
}
impl Drop for Iter<'_> {
    fn drop(&mut self) {
        unsafe { insitu_iter_close(&mut self.0) }
    }
}
impl Drop for Batch {
    fn drop(&mut self) {
        unsafe { insitu_batch_release(&mut self.0) }
    }
}

/// Reads on to the end of the epoch: the sums of what came, and the state behind batch 2.
fn epoch(train: &mut Iter) -> Result<(u64, f64, f64, Option<insitu_state>), String> {
    let (mut n, mut sum, mut squares, mut state) = (0, 0.0, 0.0, None);
    while let Some(batch) = train.next()? {
        let (x, shape) = batch.floats("u").ok_or("u is no array of floats")?;
        if batch.info().index == 0 {
            println!("a batch is {shape:?}");
        }
        if batch.info().index == 2 {
            state = Some(batch.info().after);
        }
        n += x.len() as u64;
        sum += x.iter().map(|&v| v as f64).sum::<f64>();
        squares += x.iter().map(|&v| v as f64 * v as f64).sum::<f64>();
    }
    Ok((n, sum, squares, state))
}

fn run() -> Result<(), String> {
    let archive = std::env::args().nth(1).unwrap_or("examples/data/winds.zarr".into());
    let loader = Loader::open(&format!(
        r#"{{"url": "{archive}", "batch_size": 16, "variables": [{{"label": "u", "path": "uwnd"}}]}}"#
    ))?;
    let mut train = loader.iter(r#"{"split": "train"}"#)?;
    let (n, sum, squares, state) = epoch(&mut train)?;
    let mean = sum / n as f64;
    println!("{n} winds: mean {mean:.3} m/s, deviation {:.3}", (squares / n as f64 - mean * mean).sqrt());
    train.restore(&state.ok_or("there is no batch 2")?)?;
    let (rest, ..) = epoch(&mut train)?;
    println!("behind batch 2: {rest} winds");
    match Loader::open(r#"{"ulr": "winds.zarr"}"#) {
        Ok(_) => Err("a wrong name was taken".into()),
        Err(text) => Ok(println!("{text}")),
    }
}

fn main() {
    if let Err(text) = run() {
        eprintln!("18_rust: {text}");
        std::process::exit(2);
    }
}
