//! A module for Fortran 2008 with a subroutine for each routine.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Names, NoStub, StubFile, Stubs, documentation, is_value, made, parts, passed};
use crate::model::{Element, Interface, Mode, Module, Param, Type};

/// Most letters of a name.
const MOST_NAME: usize = 63;
/// Most dimensions that `grpc_push` takes.
const MOST_RANK: usize = 4;

/// What the subroutines use of other modules, in small letters.
const WORDS: &str = "\
    c_char c_double c_double_complex c_float c_float_complex c_funloc c_int c_int8_t c_int16_t \
    c_int32_t c_int64_t c_ptr grpc_arguments grpc_call grpc_function_handle \
    grpc_function_handle_default grpc_invoke grpc_object_handle grpc_object_handle_default \
    grpc_push grpc_push_function grpc_push_in";

pub fn stubs(module: &Module, unit: &str) -> Stubs {
    let mut made_of = Source::new();
    let unit_name = made_of.names.take(unit);
    let mut left_out = Vec::new();
    let (routines, classes) = parts(module);
    for interface in routines {
        let name = format!("call_{}", interface.name);
        left_out.extend(made_of.routine(interface, &name).err());
    }
    for class in classes {
        let name = format!("call_{}", class.name);
        let made = made_of.maker(&name, &class.name, true);
        left_out.extend(made.map_err(|why| NoStub { routine: class.name.clone(), why }).err());
        for method in &class.methods {
            let name = format!("{name}_{}", method.method());
            left_out.extend(made_of.routine(method, &name).err());
        }
    }
    let mut text = format!("! {}\nmodule {unit_name}\n", made(unit));
    text += "  use, intrinsic :: iso_c_binding\n  use kumi_grpc\n  implicit none\n  private\n";
    for name in &made_of.public {
        text += &format!("  public :: {name}\n");
    }
    if !made_of.functions.is_empty() {
        text += &format!("\n  abstract interface\n{}  end interface\n", made_of.functions);
    }
    text += &format!("\ncontains\n{}end module {unit_name}\n", made_of.procedures);
    Stubs { files: Vec::from([StubFile { name: format!("{unit}.f90"), text }]), left_out }
}

/// The module under construction.
struct Source {
    names: Names,
    public: Vec<String>,
    /// The interfaces of functions that routines call.
    functions: String,
    procedures: String,
}

/// The arguments of a procedure, one a line.
fn list(names: &[String]) -> String {
    format!("( &\n      {})", names.join(", &\n      "))
}

fn checked(name: String) -> Result<String, String> {
    if name.len() > MOST_NAME {
        return Err(format!("Fortran has no name as long as `{name}`"));
    }
    Ok(name)
}

impl Source {
    fn new() -> Source {
        Source {
            names: Names::folding(WORDS),
            public: Vec::new(),
            functions: String::new(),
            procedures: String::new(),
        }
    }

    /// The subroutine that makes the handle of a routine, or an object of a class.
    fn maker(&mut self, name: &str, called: &str, is_class: bool) -> Result<(), String> {
        let (kind, suffix) = if is_class { ("object", "object") } else { ("function", "handle") };
        let name = checked(self.names.take(&format!("{name}_{suffix}")))?;
        self.procedures += &format!(
            "\n  subroutine {name}(handle, stat)\n    type(grpc_{kind}_handle), intent(inout) :: handle\n    \
             integer(c_int), intent(out), optional :: stat\n\n    call grpc_{kind}_handle_default( &\n      handle, &\n      \
             '{called}', &\n      stat)\n  end subroutine {name}\n"
        );
        self.public.push(name);
        Ok(())
    }

    /// The subroutine that calls a routine or method, and the one that makes the handle of a routine.
    fn routine(&mut self, interface: &Interface, name: &str) -> Result<(), NoStub> {
        let left_out = |why: String| NoStub { routine: interface.name.clone(), why };
        let is_method = !interface.class.is_empty();
        let call = Call::new(interface, &mut self.names, name).map_err(left_out)?;
        if !is_method {
            self.maker(name, &interface.name, false).map_err(left_out)?;
        }
        self.functions += &call.functions;
        self.public.extend(call.interfaces.iter().cloned());
        self.public.push(call.name.clone());
        self.procedures += &call.text(interface, is_method);
        Ok(())
    }
}

/// A subroutine that calls.
#[derive(Default)]
struct Call {
    name: String,
    /// Dummy arguments, without the handle and the last two.
    arguments: Vec<String>,
    declarations: Vec<String>,
    pushes: Vec<String>,
    functions: String,
    interfaces: Vec<String>,
    /// The name of the list of arguments.
    list: String,
}

impl Call {
    fn new(interface: &Interface, names: &mut Names, name: &str) -> Result<Call, String> {
        let name = checked(names.take(name))?;
        let mut own = Names::folding(WORDS);
        for fixed in ["handle", "stat", "limit"] {
            own.take(fixed);
        }
        let list = own.take("arguments");
        // A procedure does not have its own name as an argument's.
        own.take(&name);
        let mut call = Call { name, list, ..Call::default() };
        for param in passed(interface) {
            let dummy = checked(own.take(&param.name))?;
            call.argument(param, &dummy, names)?;
            call.arguments.push(dummy);
        }
        Ok(call)
    }

    fn argument(&mut self, param: &Param, dummy: &str, names: &mut Names) -> Result<(), String> {
        let list = &self.list;
        let (declaration, push) = match &param.ty {
            Type::Number(element) => {
                let ty = number(*element, &param.name)?;
                let rank = param.dims.len();
                if rank > MOST_RANK {
                    return Err(format!("`{}` has more than {MOST_RANK} dimensions", param.name));
                }
                let colons = Vec::from_iter(core::iter::repeat_n(":", rank)).join(", ");
                let shape = if rank == 0 { String::new() } else { format!("({colons})") };
                if param.mode == Mode::In {
                    (format!("{ty}, intent(in) :: {dummy}{shape}"), "grpc_push_in")
                } else {
                    let contiguous = if rank == 0 { "" } else { ", contiguous" };
                    let ty = format!("{ty}, intent(inout), target{contiguous} :: {dummy}{shape}");
                    (ty, "grpc_push")
                }
            }
            Type::String if param.mode != Mode::In => {
                (format!("character(len=*), intent(inout), target :: {dummy}"), "grpc_push")
            }
            Type::String | Type::File => {
                (format!("character(len=*), intent(in) :: {dummy}"), "grpc_push_in")
            }
            Type::Callback(params) => {
                let name = checked(names.take(&format!("{}_{}", self.name, param.name)))?;
                self.functions += &function(params, &name)?;
                self.declarations.push(format!("procedure({name}) :: {dummy}"));
                self.interfaces.push(name);
                self.pushes.push(format!("call grpc_push_function({list}, c_funloc({dummy}))"));
                return Ok(());
            }
        };
        self.declarations.push(declaration);
        self.pushes.push(format!("call {push}({list}, {dummy})"));
        Ok(())
    }

    fn text(&self, interface: &Interface, is_method: bool) -> String {
        let mut text = String::from("\n");
        for line in documentation(interface) {
            text += &format!("  ! {}\n", line.trim_end());
        }
        let mut dummies = Vec::from(["handle".to_string()]);
        dummies.extend(self.arguments.iter().cloned());
        dummies.extend(["stat".to_string(), "limit".to_string()]);
        text += &format!("  subroutine {}{}\n", self.name, self::list(&dummies));
        let kind = if is_method { "object" } else { "function" };
        text += &format!("    type(grpc_{kind}_handle), intent(in) :: handle\n");
        for line in &self.declarations {
            text += &format!("    {line}\n");
        }
        text += "    integer(c_int), intent(out), optional :: stat\n";
        text += "    integer(c_int), intent(in), optional :: limit\n";
        text += &format!("    type(grpc_arguments) :: {}\n\n", self.list);
        for line in &self.pushes {
            text += &format!("    {line}\n");
        }
        let list = &self.list;
        text += &match is_method {
            false => format!("    call grpc_call(handle, {list}, stat, limit)\n"),
            true => format!(
                "    call grpc_invoke(handle, '{}', {list}, stat, limit)\n",
                interface.method()
            ),
        };
        text + &format!("  end subroutine {}\n", self.name)
    }
}

fn number(element: Element, parameter: &str) -> Result<&'static str, String> {
    match element {
        Element::I8 => Ok("integer(c_int8_t)"),
        Element::I16 => Ok("integer(c_int16_t)"),
        Element::I32 => Ok("integer(c_int32_t)"),
        Element::I64 => Ok("integer(c_int64_t)"),
        Element::F32 => Ok("real(c_float)"),
        Element::F64 => Ok("real(c_double)"),
        Element::C64 => Ok("complex(c_float_complex)"),
        Element::C128 => Ok("complex(c_double_complex)"),
        Element::U8 | Element::U16 | Element::U32 | Element::U64 => {
            Err(format!("`{parameter}` is {element}, and Fortran has no integers without a sign"))
        }
    }
}

/// The interface of a function that a routine calls.
fn function(params: &[Param], name: &str) -> Result<String, String> {
    let mut own = Names::folding(WORDS);
    own.take(name);
    let (mut dummies, mut declarations) = (Vec::new(), String::new());
    for param in params {
        let dummy = checked(own.take(&param.name))?;
        let ty = match &param.ty {
            Type::Number(element) => number(*element, &param.name)?,
            _ => "type(c_ptr), value",
        };
        let intent = match (param.mode, is_value(param), &param.ty) {
            (_, true, _) => ", value",
            (_, _, Type::String | Type::File | Type::Callback(_)) => "",
            (Mode::In, ..) => ", intent(in)",
            _ => ", intent(inout)",
        };
        let shape = if param.is_array() { "(*)" } else { "" };
        declarations += &format!("      {ty}{intent} :: {dummy}{shape}\n");
        dummies.push(dummy);
    }
    let dummies = if dummies.is_empty() { "()".to_string() } else { list(&dummies) };
    Ok(format!(
        "    subroutine {name}{dummies} bind(c)\n      import\n{declarations}    end subroutine {name}\n"
    ))
}
