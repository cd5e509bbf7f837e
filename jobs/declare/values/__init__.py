"""The values that declarations consist of, each with its check."""
