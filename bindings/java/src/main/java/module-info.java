/** Calls routines of numerical libraries on servers over the network. */
module kumi.call {
    requires com.fasterxml.jackson.core;

    exports kumi.call;
    exports kumi.call.idl;
}
