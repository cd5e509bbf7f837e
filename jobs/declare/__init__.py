"""What a user declares: free of Spark and of clients, so that everybody can load it in no time."""
